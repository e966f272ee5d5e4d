import { decode, encode } from "@msgpack/msgpack";
import WebSocket from "ws";

const game = "game:GuessTheNumber-v0-easy";
const headers = { Authorization: `Bearer ${process.env.TOKEN}` };
const socket = new WebSocket(process.env.URL!.replace("http", "ws") + "/v1/session", { headers });
const moves = ["5", "2", "1"].map((n) => ({ type: "step", action: `\\boxed{${n}}` }));
const verbs: object[] = [{ type: "reset", task: { env: game, seed: 3 } }, ...moves];
let seq = 0;

const send = (frame: object) => socket.send(encode(frame));
const call = (verb: object) => send({ type: "call", seq: ++seq, request: seq, deadline: 10, verb });

socket.on("open", () => send({ type: "hello", versions: [1], env: game }));
socket.on("message", (data: Uint8Array) => {
  const frame = decode(data) as any; // welcome, reply or fault: docs/reference/protocol.md
  const result = frame.result ?? {};
  if (result.type === "done" || frame.type === "fault") return socket.close();
  if (result.observation !== undefined) console.log(result.observation, result.reward ?? null);
  const over = result.terminated || result.truncated || verbs.length === 0;
  call(over ? { type: "close" } : verbs.shift()!);
});
