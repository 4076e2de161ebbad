"use strict";

function element(kind, text) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  return made;
}

function resolved(schema, all, depth = 0) {
  if (schema === null || typeof schema !== "object" || depth > 12) return schema;
  if (Array.isArray(schema)) return schema.map((one) => resolved(one, all, depth + 1));
  if (schema.$ref) return resolved(all[schema.$ref.split("/").pop()], all, depth + 1);
  return Object.fromEntries(Object.entries(schema).map(([name, value]) => [name, resolved(value, all, depth + 1)]));
}

function operation(method, path, found, all) {
  const box = element("details");
  const head = element("summary");
  head.append(element("code", `${method.toUpperCase()} ${path}`), ` ${(found.tags || []).join(", ")}`);
  box.append(head, element("p", found.description || found.summary || ""));
  for (const one of found.parameters || []) {
    const line = element("p");
    line.append(element("code", `${one.in}: ${one.name}`), ` ${one.description || ""} `);
    line.append(element("code", JSON.stringify(resolved(one.schema, all))));
    box.append(line);
  }
  const content = found.requestBody && found.requestBody.content["application/json"];
  if (content) box.append(element("p", "Body:"), element("pre", JSON.stringify(resolved(content.schema, all), null, 2)));
  return box;
}

async function start() {
  const target = document.getElementById("paths");
  const answer = await fetch("/openapi.json");
  if (!answer.ok) {
    target.textContent = `The server answers ${answer.status}.`;
    return;
  }
  const data = await answer.json();
  const all = (data.components || {}).schemas || {};
  for (const [path, methods] of Object.entries(data.paths))
    for (const [method, found] of Object.entries(methods)) target.append(operation(method, path, found, all));
}

start();
