// Every way by which a page may try to reach a machine: [host, TCP port, UDP port] -> the names of the tries.
// A try counts if the browser has what it needs, and if it could arrive at one of the ports. The others are made as well.
async ([host, tcp, udp]) => {
  const address = `http://${host}:${tcp}`, done = [];
  const attempt = async (name, run, counts = true) => {
    const patience = new Promise(resolve => fetch("about:blank").catch(() => 0).finally(resolve));
    try { await Promise.race([run(), patience]); } catch (error) { /* refused */ }
    if (counts) done.push(name);
  };
  const added = (tag, parts) => document.documentElement.append(Object.assign(document.createElement(tag), parts));
  await attempt("fetch", () => fetch(`${address}/fetch`));
  await attempt("fetch no-cors", () => fetch(`${address}/nocors`, { mode: "no-cors" }));
  await attempt("fetch keepalive", () => fetch(`${address}/keep`, { method: "POST", keepalive: true, mode: "no-cors" }));
  await attempt("xhr", async () => { const x = new XMLHttpRequest(); x.open("GET", `${address}/xhr`); x.send(); });
  await attempt("beacon", async () => navigator.sendBeacon(`${address}/beacon`, "x"));
  await attempt("websocket", async () => new WebSocket(`ws://${host}:${tcp}/ws`));
  await attempt("event source", async () => new EventSource(`${address}/events`));
  await attempt("image", async () => { new Image().src = `${address}/image`; });
  await attempt("audio", async () => { new Audio(`${address}/audio`).play().catch(() => 0); });
  await attempt("script", async () => added("script", { src: `${address}/script` }));
  await attempt("style", async () => added("link", { rel: "stylesheet", href: `${address}/style` }));
  await attempt("icon", async () => added("link", { rel: "icon", href: `${address}/icon` }));
  await attempt("prefetch", async () => added("link", { rel: "prefetch", href: `${address}/prefetch` }));
  await attempt("preload", async () => added("link", { rel: "preload", as: "fetch", href: `${address}/preload` }));
  await attempt("preconnect", async () => added("link", { rel: "preconnect", href: address }));
  await attempt("dns", async () => added("link", { rel: "dns-prefetch", href: `http://x.${host}.nip.test` }), false);
  await attempt("manifest", async () => added("link", { rel: "manifest", href: `${address}/manifest` }));
  await attempt("module", () => import(`${address}/module`));
  await attempt("worker", async () => new Worker(URL.createObjectURL(new Blob([`fetch("${address}/worker")`]))));
  await attempt("shared worker", async () => new SharedWorker(URL.createObjectURL(new Blob([`fetch("${address}/shared")`]))));
  await attempt("service worker", () => navigator.serviceWorker.register(`/worker.js?${encodeURIComponent(address)}`), "serviceWorker" in navigator);
  await attempt("frame", async () => added("iframe", { src: `${address}/frame` }));
  await attempt("object", async () => added("object", { data: `${address}/object` }));
  await attempt("embed", async () => added("embed", { src: `${address}/embed` }));
  await attempt("video poster", async () => added("video", { poster: `${address}/poster` }));
  await attempt("css image", async () => added("div", { style: `background: url(${address}/css)` }));
  await attempt("font", () => new FontFace("x", `url(${address}/font)`).load());
  await attempt("form", async () => { added("form", { action: `${address}/form`, method: "post", target: "_blank" }); document.forms[0].submit(); });
  await attempt("popup", async () => window.open(`${address}/popup`));
  await attempt("download", async () => { const a = Object.assign(document.createElement("a"), { href: `${address}/download`, download: "x" }); a.click(); });
  await attempt("ping", async () => { const a = Object.assign(document.createElement("a"), { href: "#", ping: `${address}/ping` }); a.click(); });
  await attempt("stun", async () => {
    const peer = new RTCPeerConnection({ iceServers: [{ urls: `stun:${host}:${udp}` }, { urls: `turn:${host}:${tcp}?transport=tcp`, username: "a", credential: "b" }] });
    peer.createDataChannel("x");
    await peer.setLocalDescription(await peer.createOffer());
  });
  await attempt("webtransport", async () => { await new WebTransport(`https://${host}:${udp}/`).ready; }, "WebTransport" in window);
  await attempt("file fetch", () => fetch("file:///etc/passwd"), false);
  await attempt("file frame", async () => added("iframe", { src: "file:///etc/passwd" }), false);
  await attempt("report", async () => document.head.append(Object.assign(document.createElement("style"), { textContent: "p {}" })));  // the page's policy asks for a report
  await attempt("print", async () => window.print(), false);
  await attempt("share", () => navigator.share({ url: address }), false);
  await attempt("protocol", async () => navigator.registerProtocolHandler("web+x", `${location.origin}/?%s`), false);
  await attempt("payment", async () => { await new PaymentRequest([{ supportedMethods: `${address}/pay` }], { total: { label: "x", amount: { currency: "EUR", value: "1" } } }).canMakePayment(); }, "PaymentRequest" in window);
  await attempt("bluetooth", () => navigator.bluetooth.requestDevice({ acceptAllDevices: true }), false);
  await attempt("refresh", async () => added("meta", { httpEquiv: "refresh", content: `1;url=${address}/refresh` }));
  return done;
}
