"use strict";

const byId = (id) => document.getElementById(id);
let token = "";

function table(id, heads, rows, empty) {
  const made = [];
  const line = (cells, kind) => {
    const row = document.createElement("tr");
    for (const cell of cells) {
      const box = document.createElement(kind);
      box.textContent = cell === null || cell === undefined ? "–" : String(cell);
      if (["silent", "disconnected"].includes(cell)) box.className = cell;
      row.append(box);
    }
    made.push(row);
  };
  if (rows.length) line(heads, "th");
  for (const row of rows) line(row, "td");
  if (!rows.length) line([empty], "td");
  byId(id).replaceChildren(...made);
}

function facts(pairs) {
  byId("facts").replaceChildren(
    ...pairs.map(([name, value]) => {
      const box = document.createElement("div");
      const number = document.createElement("b");
      const text = document.createElement("span");
      number.textContent = String(value);
      text.textContent = name;
      box.append(number, text);
      return box;
    }),
  );
}

function say(text, kind) {
  byId("reason").textContent = text;
  byId("reason").className = `reason ${kind}`;
}

function show(data) {
  const asked = data.registration;
  byId("trainer").textContent = asked
    ? `Trainer ${asked.wandb_project}/${asked.wandb_group}: batches of ${asked.batch_size} sequences, step ${data.current_step}`
    : "No trainer has registered";
  say(data.reason === null ? "A batch is ready." : data.reason, data.reason === null ? "good" : "");
  facts([
    ["groups queued", data.queue_size],
    ["sequences queued", data.queued_sequences],
    ["groups a minute", data.groups_per_minute],
    ["groups received", data.received],
    ["groups served", data.served],
    ["batches", data.batches],
    ["delivered again", data.redelivered],
    ["refused", data.refused],
  ]);
  table(
    "environments",
    ["name", "state", "last seen", "groups", "a minute", "queued", "share", "minimum", "lag in steps"],
    data.environments.map((env) => [
      env.name, env.state, `${env.silent_for} s ago`, env.groups, env.groups_per_minute, env.queued, env.share,
      env.minimum, env.lag,
    ]),
    "none has registered",
  );
  table(
    "leases",
    ["batch", "groups", "sequences", "seconds left"],
    data.leases.map((lease) => [lease.batch, lease.groups, lease.sequences, lease.seconds_left]),
    "none is lent",
  );
}

async function refresh() {
  try {
    const answer = await fetch("/live/data", token ? { headers: { Authorization: `Bearer ${token}` } } : {});
    byId("login").hidden = answer.status !== 401;
    if (answer.ok) show(await answer.json());
    else say(answer.status === 401 ? "This server asks for a token." : `The server answers ${answer.status}.`, "bad");
  } catch {
    say("The server does not answer.", "bad");
  }
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value;
  refresh();
});
refresh();
setInterval(refresh, 2000);
