"use strict";
// Draws the charts of the page, follows the theme and the reader's choices, scrubs index paths, and
// refreshes a page that is served while its run goes on.
(() => {
  const root = document.documentElement;
  const find = (id) => document.getElementById(id);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 760px), (pointer: coarse)");
  const REFRESH_SECONDS = 3;
  const INK = "#010203", SOFT = "#010204", ACCENT = "#010205"; // as charts.py has them
  let data = null;
  let decoded = null;

  function theme() {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    return { [INK]: colour("ink"), [SOFT]: colour("soft"), [ACCENT]: colour("accent"), line: colour("line") };
  }

  // A copy with the colours of the theme; arrays of numbers stay as they are.
  function themed(value, colours) {
    if (typeof value === "string") return colours[value] || value;
    if (Array.isArray(value)) return value.map((part) => themed(part, colours));
    if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, themed(part, colours)]));
  }

  function show(box, figure) {
    const colours = theme();
    const layout = themed(figure.layout, colours);
    const axis = { gridcolor: colours.line, zeroline: false, linecolor: colours.line, automargin: true };
    for (const name of Object.keys(layout)) {
      if (/^[xy]axis/.test(name)) layout[name] = { ...axis, ...layout[name] };
    }
    const all = {
      margin: { l: 52, r: 12, t: 10, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colours[INK], size: 12, family: getComputedStyle(document.body).fontFamily },
      dragmode: narrow.matches ? false : "zoom", ...layout,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", ...layout.legend },
      hoverlabel: { bgcolor: colours[INK], font: { color: getComputedStyle(document.body).backgroundColor } },
    };
    const config = { responsive: true, displayModeBar: false };
    return Plotly.react(box, themed(figure.data, colours), all, config);
  }

  function drawChart(name) {
    const box = find(name);
    const figures = data.charts[name];
    const choice = box.closest("section").querySelector("select[data-section]");
    const keys = Object.keys(figures);
    const key = keys.length > 1 && choice ? choice.value : keys[0];
    if (key in figures) show(box, figures[key]);
    box.closest("figure").hidden = !(key in figures);
  }

  function decode(spec) {
    const bytes = Uint8Array.from(atob(spec.rung_of), (char) => char.charCodeAt(0));
    return spec.bytes === 2 ? new Uint16Array(bytes.buffer) : bytes;
  }

  function drawPaths() {
    const spec = data.paths[0];
    if (!spec || !find("paths-step")) return;
    decoded = decoded || decode(spec);
    const [, points, replicas] = spec.shape;
    const chain = Number(find("paths-chain").value);
    const chosen = Number(find("paths-replica").value);
    const end = Number(find("paths-step").value);
    const start = Math.max(0, end - Number(find("paths-width").value));
    const rung = (point, replica) => decoded[(chain * points + point) * replicas + replica];
    const x = [], others = [], otherX = [], path = [];
    for (let point = start; point < end; point++) {
      x.push((point + 1) * spec.every);
      path.push(rung(point, chosen));
    }
    for (let replica = 0; replica < replicas; replica++) {
      if (replica === chosen) continue;
      for (let point = start; point < end; point++) {
        otherX.push((point + 1) * spec.every);
        others.push(rung(point, replica));
      }
      otherX.push(null);
      others.push(null);
    }
    const step = end * spec.every;
    const ends = spec.ends[chain] ? spec.ends[chain][chosen] : null;
    const seen = ends ? ends.filter((at) => at > start * spec.every && at <= step) : [];
    const hv = { shape: "hv" };
    show(find("paths"), {
      data: [
        { type: "scatter", mode: "lines", x: otherX, y: others, line: { ...hv, color: SOFT, width: 0.6 },
          opacity: 0.45, name: "other replicas", hoverinfo: "skip" },
        { type: "scatter", mode: "lines", x, y: path, line: { ...hv, color: ACCENT, width: 2 },
          name: "replica " + chosen },
        { type: "scatter", mode: "markers", x: seen, y: seen.map(() => 0), cliponaxis: false,
          marker: { color: ACCENT, size: 8, line: { color: INK, width: 1 } }, name: "end of a round trip" },
      ],
      layout: {
        xaxis: { title: { text: "step" }, range: [start * spec.every, Math.max(step, 1)] },
        yaxis: { title: { text: "rung (0 = coldest)" }, range: [-0.5, replicas - 0.5], tick0: 0,
          ...(replicas <= 12 ? { dtick: 1 } : {}) },
        uirevision: step,
      },
    });
    const now = path[path.length - 1];
    const trips = ends ? ends.filter((at) => at <= step).length : null;
    const counted = trips === null ? "" : `, after ${trips} round trip${trips === 1 ? "" : "s"}`;
    const words = `Step ${step.toLocaleString("en")}: replica ${chosen} is on rung ${now}${counted}.`;
    find("paths-words").textContent = words;
    find("paths-step").setAttribute("aria-valuetext", words);
    const at = [];
    for (let replica = 0; replica < replicas; replica++) at[rung(end - 1, replica)] = replica;
    [...find("paths-rungs").children].forEach((item, place) => {
      item.textContent = at[place];
      item.className = at[place] === chosen ? "chosen" : "";
      item.setAttribute("aria-label", `rung ${place}: replica ${at[place]}`);
    });
  }

  function draw() {
    Object.keys(data.charts).forEach(drawChart);
    drawPaths();
  }

  function begin() {
    data = JSON.parse(find("data").textContent);
    decoded = null;
    for (const choice of document.querySelectorAll("select[data-section]")) {
      choice.addEventListener("change", () => {
        const inside = choice.closest("section").querySelectorAll("figure.chart .plot");
        inside.forEach((box) => { if (Object.keys(data.charts[box.id]).length > 1) drawChart(box.id); });
      });
    }
    for (const id of ["paths-chain", "paths-replica", "paths-width"]) {
      if (find(id)) find(id).addEventListener("change", drawPaths);
    }
    if (find("paths-step")) find("paths-step").addEventListener("input", drawPaths);
    draw();
    const measured = find("js-plotly-tester"); // where Plotly measures text
    if (measured) measured.setAttribute("aria-hidden", "true");
    root.dataset.ready = "true";
  }

  // What the reader chose stays as it was when the page is replaced by a newer one.
  function choices() {
    const kept = [...document.querySelectorAll("main select")].map((item) => [item.id, item.value]);
    const slider = find("paths-step");
    if (slider && slider.value !== slider.max) kept.push([slider.id, slider.value]);
    const open = [...document.querySelectorAll("details[open]")].map((item) => item.closest("figure"));
    const opened = open.map((figure) => figure && figure.querySelector(".plot").id);
    return { kept, opened, focus: document.activeElement && document.activeElement.id };
  }

  function restore({ kept, opened, focus }) {
    for (const [id, value] of kept) {
      const item = find(id);
      if (item && (item.tagName !== "SELECT" || [...item.options].some((o) => o.value === value))) item.value = value;
    }
    for (const id of opened) {
      const details = id && find(id) && find(id).closest("figure").querySelector("details");
      if (details) details.open = true;
    }
    if (focus && find(focus)) find(focus).focus({ preventScroll: true });
  }

  async function refresh() {
    try {
      const version = (await (await fetch("version", { cache: "no-store" })).text()).trim();
      if (version !== root.dataset.version) {
        const text = await (await fetch("./", { cache: "no-store" })).text();
        const next = new DOMParser().parseFromString(text, "text/html");
        const before = choices(), place = window.scrollY;
        document.querySelectorAll(".plot").forEach((box) => Plotly.purge(box));
        for (const part of ["header", "nav", "main"]) {
          document.querySelector(part).replaceWith(next.querySelector(part));
        }
        document.title = next.title;
        find("data").textContent = next.getElementById("data").textContent;
        root.dataset.version = next.documentElement.dataset.version;
        restore(before);
        begin();
        window.scrollTo(0, place);
      }
      root.dataset.connected = "true";
    } catch (error) {
      root.dataset.connected = "false"; // the server has ended; the page stays as it is
    }
    window.setTimeout(refresh, 1000 * REFRESH_SECONDS);
  }

  // Plotly travels compressed inside the page; a served page has it as a script of its own.
  async function unpack() {
    const packed = find("plotly");
    if (!packed) return;
    const bytes = Uint8Array.from(atob(packed.textContent), (c) => c.charCodeAt(0));
    const text = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(text).text();
    document.head.append(script);
    packed.remove();
  }

  unpack().then(() => {
    dark.addEventListener("change", draw);
    narrow.addEventListener("change", draw);
    begin();
    if (root.dataset.version) window.setTimeout(refresh, 1000 * REFRESH_SECONDS);
  });
})();
