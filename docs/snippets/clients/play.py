import json
import os
import urllib.request

URL, TOKEN = os.environ["URL"], os.environ["TOKEN"]


def post(path, **body):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))


session = post("/v1/sessions", type="hello", versions=[1], env="game:GuessTheNumber-v0-easy")["session"]
task = {"env": "game:GuessTheNumber-v0-easy", "seed": 3}
verbs = [{"type": "reset", "task": task}, *({"type": "step", "action": f"\\boxed{{{n}}}"} for n in (5, 2, 1))]
for seq, verb in enumerate(verbs, start=1):
    call = {"type": "call", "seq": seq, "request": seq, "deadline": 10, "verb": verb}
    result = post(f"/v1/sessions/{session}/calls", **call)["result"]
    print(result["observation"], result.get("reward"))
    if result.get("terminated") or result.get("truncated"):
        break
post(f"/v1/sessions/{session}/calls", type="call", seq=9, request=9, deadline=10, verb={"type": "close"})
