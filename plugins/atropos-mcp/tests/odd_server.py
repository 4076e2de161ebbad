"""An MCP server made by hand, in the standard library: python odd_server.py MODE. Each mode is another misbehaviour."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else "plain"
MEMORY = bytearray()
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def send(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def tool(name: str, schema: object = SCHEMA, **more: object) -> dict[str, object]:
    return {"name": name, "description": f"The tool {name}.", "inputSchema": schema, **more}


def tools() -> list[dict[str, object]]:
    if MODE == "twice":
        return [tool("echo"), tool("echo")]
    if MODE == "alike":
        return [tool("a.b"), tool("a/b")]
    if MODE == "nameless":
        return [tool("")]
    if MODE == "schemas":
        deep: dict[str, object] = {"type": "string"}
        for _ in range(100):
            deep = {"type": "array", "items": deep}
        return [
            tool("huge", {**SCHEMA, "description": "x" * 200_000}),
            tool("remote", {"type": "object", "properties": {"text": {"$ref": "http://127.0.0.1:9/schema.json"}}}),
            tool(
                "loop",
                {
                    "type": "object",
                    "properties": {"text": {"$ref": "#/$defs/a"}},
                    "$defs": {"a": {"$ref": "#/$defs/a"}},
                },
            ),
            tool("deep", {"type": "object", "properties": {"text": deep}}),
        ]
    if MODE == "output":
        return [
            tool("echo", outputSchema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
        ]
    if MODE == "none":
        return []
    return [tool("echo"), tool("other.tool"), tool("state")]


def called(name: str, arguments: dict[str, object], count: int) -> dict[str, object]:
    text = str(arguments.get("text"))
    if text == "environment":
        return {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]}
    if text == "folder":
        return {"content": [{"type": "text", "text": os.getcwd()}]}
    if text == "die":
        sys.stderr.write("Traceback: the disk is on fire\n")
        sys.stderr.flush()
        os._exit(3)
    if text == "hang":
        time.sleep(3600)
    if text == "half":
        return {"content": [{"type": "text", "text": os.fsdecode(b"caf\xe9.txt \xf0\x9f\x98\x80")}]}
    if text == "fail":
        return {"content": [{"type": "text", "text": "no such product"}], "isError": True}
    if text == "parts":
        image = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
        linked = {"type": "resource_link", "uri": "file:///a.txt", "name": "a"}
        inside = {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "inside"}}
        return {"content": [{"type": "text", "text": "first"}, image, linked, inside]}
    if text == "structured":
        return {"content": [], "structuredContent": {"n": 1}}
    if text == "wrong":
        return {"content": "not a list"}
    if text == "big":
        return {"content": [{"type": "text", "text": "x" * 100_000}]}
    if text == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    if text == "orphan":
        ours = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        MEMORY.extend(bytes(200 << 20))  # to be given back before the process is dead, which takes a moment
        return {"content": [{"type": "text", "text": f"{os.getpid()} {ours.pid}"}]}
    return {"content": [{"type": "text", "text": f"{name}: {text} ({count})"}]}


def main() -> None:
    if MODE == "dead":
        sys.stderr.write("ModuleNotFoundError: No module named 'shop'\n")
        raise SystemExit(1)
    if MODE == "silent":
        time.sleep(3600)
    if MODE == "noise":
        print("Starting the server on stdio...")
        print("{not json}", flush=True)
        os.write(1, b"{caf\xe9}\n")
        print('{"jsonrpc": "2.0", "id": 77, "result": {}}', flush=True)
    if MODE == "loud":
        sys.stderr.write("debug\n" * 200_000)
    count = 0
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        method, answer = request.get("method"), {"jsonrpc": "2.0", "id": request["id"]}
        params = request.get("params") or {}
        if method == "initialize":
            version = "1999-01-01" if MODE == "version" else params["protocolVersion"]
            about = {"name": "odd", "version": "1"}
            send({**answer, "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}})
        elif method == "tools/list":
            pages = {"nextCursor": "more"} if MODE == "pages" else {}
            send({**answer, "result": {"tools": tools(), **pages}})
        elif method == "tools/call":
            count += 1
            if params.get("name") == "state" and MODE == "refuses":
                send({**answer, "error": {"code": -32602, "message": "unknown tool"}})
                continue
            if params.get("name") == "state" and MODE == "database":
                send({**answer, "error": {"code": -32000, "message": "connection closed by the database"}})
                continue
            if MODE == "noise":
                print("working on it", flush=True)
                send(
                    {
                        "jsonrpc": "2.0",
                        "id": 9999,
                        "method": "sampling/createMessage",
                        "params": {"messages": [], "maxTokens": 1},
                    }
                )
            send({**answer, "result": called(params["name"], params.get("arguments") or {}, count)})
        elif method == "ping":
            send({**answer, "result": {}})
        elif method is not None:
            send({**answer, "error": {"code": -32601, "message": "unknown method"}})


main()
