"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const digits = (value, n) => value === null || value === undefined ? "–" : value.toFixed(n).replace("-", "−");
  const state = { comparison: data.comparisons.length ? data.comparisons[0].key : null, hidden: new Set() };

  // --- light and dark ---------------------------------------------------------------------------------------------
  const remember = (value) => { try { if (value) localStorage.setItem("acr-theme", value); return localStorage.getItem("acr-theme"); } catch { return value || null; } };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const setTheme = (theme) => { root.dataset.theme = theme; repaint(); };
  $("#theme").addEventListener("click", () => setTheme(remember(root.dataset.theme === "dark" ? "light" : "dark") || "light"));
  system.addEventListener("change", () => setTheme(system.matches ? "dark" : "light"));
  root.dataset.theme = remember() || (system.matches ? "dark" : "light");

  // --- the overview table -----------------------------------------------------------------------------------------
  const overview = $("#overview-table");
  if (overview) {
    const body = overview.tBodies[0], rows = [...body.rows], heads = $$("thead th", overview);
    const value = (row, column) => {
      const cell = row.cells[column];
      if ("number" in cell.dataset) return cell.dataset.number === "" ? NaN : Number(cell.dataset.number);
      return cell.dataset.sort;
    };
    const compare = (a, b, way) => {
      if (typeof a === "string") return way * a.localeCompare(b, undefined, { numeric: true });
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
      return way * (a - b);
    };
    heads.forEach((head, column) => $("button", head).addEventListener("click", () => {
      const text = typeof value(rows[0], column) === "string";
      const before = head.getAttribute("aria-sort");
      const way = before ? (before === "ascending" ? -1 : 1) : (text ? 1 : -1);
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
      rows.sort((a, b) => compare(value(a, column), value(b, column), way));
      body.append(...rows);
    }));
    const filters = $$("[data-filter]");
    const filter = () => {
      let shown = 0;
      for (const row of rows) {
        row.hidden = filters.some((field) => {
          const wanted = field.value, has = row.dataset[field.dataset.filter];
          return wanted && (field.type === "search" ? !has.toLowerCase().includes(wanted.toLowerCase()) : has !== wanted);
        });
        shown += !row.hidden;
      }
      $("#overview-count").textContent = `${shown} of ${rows.length} rows`;
    };
    filters.forEach((field) => field.addEventListener("input", filter));
  }

  // --- drawing ----------------------------------------------------------------------------------------------------
  const coarse = matchMedia("(pointer: coarse)").matches;
  const themed = (layout) => {
    const ink = css("--ink"), soft = css("--soft"), grid = css("--grid");
    const axis = (given) => ({ gridcolor: grid, linecolor: css("--line"), tickcolor: css("--line"), tickfont: { color: soft },
      fixedrange: coarse, ...given, title: { ...given.title, font: { color: soft, size: 12 } } });
    return { ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis), paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { ...layout.font, color: ink, family: getComputedStyle(document.body).fontFamily }, dragmode: coarse ? false : "zoom",
      hoverlabel: { bgcolor: css("--panel"), bordercolor: css("--line"), font: { color: ink } } };
  };
  const drawPlot = (node) => {
    const { panel } = node.acr, shown = panel.data.filter((trace) => !state.hidden.has(trace.meta));
    node.acr.drawn = true;
    node.dataset.drawn = "yes";
    const traces = structuredClone(shown), layout = themed(structuredClone(panel.layout));
    if (panel.names) traces[0].customdata = panel.names[0].map((row) => panel.names[1].map((column) => `${row} · class ${column}`));
    if (node.clientWidth < 520) for (const trace of traces) if (trace.type === "heatmap") trace.showscale = false;
    return Plotly.react(node, traces, layout, { displayModeBar: false, responsive: true });
  };
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting && !entry.target.acr.drawn) drawPlot(entry.target);
  }, { rootMargin: "600px" });
  let waiting = null; // what is out of sight is drawn a little later, two at a time, so that the page answers at once
  const drawRest = () => {
    const left = $$(".plot").filter((node) => node.acr && !node.acr.drawn);
    left.slice(0, 2).forEach(drawPlot);
    waiting = left.length > 2 ? setTimeout(drawRest, 60) : null;
  };
  const repaint = () => {
    for (const node of $$(".plot")) if (node.acr && node.acr.drawn) drawPlot(node);
    for (const node of $$("table.heat td")) paintCell(node);
  };
  const paintCell = (cell) => {
    if (cell.dataset.share === undefined) return;
    const share = Number(cell.dataset.share), dark = root.dataset.theme === "dark";
    cell.style.background = `rgb(${css("--heat")} / ${(0.06 + 0.94 * share).toFixed(3)})`;
    cell.style.color = dark ? "#fff" : (share > 0.72 ? "#fff" : "#10161f");
  };
  const heatTable = (panel) => {
    const table = el("table", { class: "heat" }, el("caption", { class: "soft", hidden: "" }, panel.title));
    const head = el("tr", {}, el("th", { scope: "col" }, panel.corner), ...panel.columns.map((name) => el("th", { scope: "col" }, name)));
    const body = el("tbody");
    panel.cells.forEach((row, i) => body.append(el("tr", {}, el("th", { scope: "row" }, panel.rows[i]), ...row.map((value) => {
      if (value === null) return el("td", {}, "");
      const cell = el("td", { "data-share": value / 100 }, digits(value, panel.columns.length > 12 ? 0 : 1));
      paintCell(cell);
      return cell;
    }))));
    table.append(el("thead", {}, head), body);
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": panel.title }, table);
  };
  const numbersTable = (heads, rows) => el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map((head, i) => el("th", { scope: "col", class: i ? null : "left" }, head)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell, i) => i ? el("td", {}, cell) : el("th", { scope: "row", class: "left" }, cell))))));
  const fillPicker = (select, options) => {
    const before = select.value;
    select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
    if (options.some(([value]) => value === before)) select.value = before;
    select.closest("label").hidden = options.length < 2;
  };
  const drawChart = (section) => {
    const chart = data.charts[section.id], select = $("[data-picker]", section), panels = $(".panels", section);
    const key = select ? `${state.comparison}|${select.value}` : state.comparison;
    const variant = chart.variants[key] || { empty: "Nothing to draw." };
    $$(".plot", panels).forEach((node) => { near.unobserve(node); Plotly.purge(node); });
    panels.replaceChildren();
    const shown = (variant.panels || []).filter((panel) => !panel.label || !state.hidden.has(panel.label));
    panels.classList.toggle("heats", shown.length > 0 && shown.every((panel) => panel.kind === "heat"));
    for (const panel of shown) {
      const box = el("div", { class: "panel" });
      if (panel.title) box.append(el("h3", {}, panel.title));
      if (panel.kind === "heat") box.append(heatTable(panel));
      else {
        const node = el("div", { class: "plot", role: "img", "aria-label": `${panel.title || $("h2", section).textContent}. The table below has the numbers.` });
        node.style.minHeight = `${panel.layout.height}px`;
        node.acr = { panel, drawn: false };
        box.append(node);
        near.observe(node);
      }
      panels.append(box);
    }
    if (!shown.length) panels.append(el("p", { class: "empty" }, variant.empty || "All methods of this chart are switched off above."));
    if (waiting === null) waiting = setTimeout(drawRest, 300);
    const note = $(".note", section);
    note.textContent = variant.note || "";
    note.hidden = !variant.note;
    const behind = $(".behind", section);
    behind.hidden = !variant.rows;
    if (variant.rows) $(".scroll", behind).replaceChildren(numbersTable(variant.heads, variant.rows));
  };

  // --- pictures ---------------------------------------------------------------------------------------------------
  const sheet = document.head.appendChild(el("style")).sheet;
  const sprites = new Map();
  const spriteClass = (sprite) => {
    if (!sprites.has(sprite)) {
      const name = `sprite-${sprites.size}`;
      sheet.insertRule(`.${name} { background-image: url("${sprite.src}"); }`);
      sprites.set(sprite, name);
    }
    return sprites.get(sprite);
  };
  const cut = (sprite, place, size, label) => {
    const height = Math.round(size * sprite.height / sprite.width), column = place % sprite.columns, row = Math.floor(place / sprite.columns);
    const node = el("div", { class: `cut ${spriteClass(sprite)}`, role: "img", "aria-label": label });
    Object.assign(node.style, { width: `${size}px`, height: `${height}px`, backgroundSize: `${size * sprite.columns}px ${height * sprite.rows}px`,
      backgroundPosition: `${-column * size}px ${-row * height}px` });
    return node;
  };
  const drawSamples = () => {
    const box = $("#samples"), samples = data.samples[state.comparison];
    if (!samples) {
      box.replaceChildren(el("p", { class: "empty" }, "No pictures: the runs of this comparison hold no samples.npz, which a run that is evaluated under shift writes at its end."));
      box.style.display = "block";
      return;
    }
    box.style.display = "";
    box.replaceChildren(...samples.names.map((name, i) => el("figure", {}, el("figcaption", {}, data.scenarios[name] || name),
      el("div", { class: "strip" }, ...Array.from({ length: samples.n }, (_, k) => cut(samples.sprite, i * samples.n + k, 38, `test image ${k + 1}, ${data.scenarios[name] || name}`))))));
  };
  const drawMemory = () => {
    const select = $("#memory-pick"), tiles = $("#memory-tiles"), note = $("#memory-note"), behind = $("#memory-table");
    const memory = data.memories[select.value];
    behind.hidden = !memory;
    if (!memory) {
      note.textContent = "";
      tiles.replaceChildren(el("p", { class: "empty" }, "No pictures: no run here holds a memory that can be read (memory.npz). Methods without a memory, such as finetune, store nothing."));
      return;
    }
    const shown = memory.groups.reduce((sum, group) => sum + group.variance.length, 0);
    note.textContent = `Run ${memory.run}: ${shown} of ${memory.stored} stored samples shown.` +
      (memory.confidence ? "" : " This method records no confidence, so its samples stand in the order of the memory.");
    const byTask = new Map();
    let place = 0;
    for (const group of memory.groups) {
      const box = el("div", { class: "class" }, el("h4", {}, `class ${group.name} · ${group.stored} stored`));
      const row = el("div", { class: "tiles" });
      group.variance.forEach((variance, i) => {
        const words = `class ${group.name}, task ${group.task}` + (variance === null ? "" : `, variance ${digits(variance, 4)}, mean confidence ${digits(group.mean[i], 3)}`);
        const tile = el("figure", { class: "tile", title: words }, cut(memory.sprite, place++, 44, words));
        if (variance !== null) tile.append(el("figcaption", {}, digits(variance, 3)));
        row.append(tile);
      });
      box.append(row);
      if (!byTask.has(group.task)) byTask.set(group.task, []);
      byTask.get(group.task).push(box);
    }
    tiles.replaceChildren(...[...byTask].map(([task, boxes]) => el("div", { class: "task" }, el("h3", {}, `Task ${task}`), el("div", { class: "classes" }, ...boxes))));
    const known = (values) => values.filter((value) => value !== null);
    $(".scroll", behind).replaceChildren(numbersTable(["class", "task", "stored", "shown", "highest variance", "lowest variance"], memory.groups.map((group) => {
      const values = known(group.variance);
      return [group.name, `${group.task}`, `${group.stored}`, `${group.variance.length}`, ...(values.length ? [digits(Math.max(...values), 4), digits(Math.min(...values), 4)] : ["–", "–"])];
    })));
  };

  // --- what the charts show ---------------------------------------------------------------------------------------
  const charts = $$("section.chart");
  const drawCards = () => $("#short").replaceChildren(...data.short[state.comparison].map((card) => {
    const node = el("div", { class: "card" }, el("p", { class: "what" }, card.title), el("p", { class: "who" }, card.label),
      el("p", { class: "value" }, card.value), el("p", { class: "then" }, card.note));
    node.style.setProperty("--mark", data.looks[card.label].color);
    return node;
  }));
  const dashed = (look) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [name, value] of Object.entries({ width: 20, height: 8, viewBox: "0 0 20 8", "aria-hidden": "true", class: "swatch-line" })) node.setAttribute(name, value);
    const line = node.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "line"));
    const gaps = { solid: "", dash: "6 3", dot: "2 3", dashdot: "6 3 2 3" }[look.dash];
    for (const [name, value] of Object.entries({ x1: 0, x2: 20, y1: 4, y2: 4, stroke: look.color, "stroke-width": 5, "stroke-dasharray": gaps })) line.setAttribute(name, value);
    return node;
  };
  const drawChips = () => {
    const comparison = data.comparisons.find((one) => one.key === state.comparison);
    $("#chips").replaceChildren(...comparison.labels.map((label) => {
      const swatch = dashed(data.looks[label]);
      const chip = el("button", { type: "button", class: "chip", "aria-pressed": !state.hidden.has(label), title: "Show or hide in all charts" }, swatch, label);
      chip.addEventListener("click", () => {
        if (!state.hidden.delete(label)) state.hidden.add(label);
        chip.setAttribute("aria-pressed", !state.hidden.has(label));
        charts.forEach((section) => {
          const { variants } = data.charts[section.id], select = $("[data-picker]", section);
          const variant = variants[select ? `${state.comparison}|${select.value}` : state.comparison];
          if ((variant.panels || []).some((panel) => panel.label)) drawChart(section);
        });
        repaint();
      });
      return chip;
    }));
  };
  const drawAll = () => {
    drawCards();
    drawChips();
    for (const section of charts) {
      const select = $("[data-picker]", section);
      if (select) fillPicker(select, data.charts[section.id].pickers[state.comparison]);
      drawChart(section);
    }
    drawSamples();
  };
  if (state.comparison) {
    $("#toolbar").hidden = $("#short-section").hidden = false;
    const select = $("#comparison");
    fillPicker(select, data.comparisons.map((one) => [one.key, one.name]));
    select.closest("label").hidden = false;
    select.addEventListener("change", () => { state.comparison = select.value; drawAll(); });
    charts.forEach((section) => { const pick = $("[data-picker]", section); if (pick) pick.addEventListener("change", () => drawChart(section)); });
    const pick = $("#memory-pick");
    fillPicker(pick, Object.keys(data.memories).map((label) => [label, label]));
    pick.addEventListener("change", drawMemory);
    drawAll();
    drawMemory();
  } else $("#memory-pick").closest("label").hidden = true;

  // --- printing and copying ---------------------------------------------------------------------------------------
  let before = null;
  const printable = (width) => $$(".plot").forEach((node) => {
    if (!node.acr.drawn) drawPlot(node);
    const wide = node.closest("[data-layout=one]") ? width : (width - 24) / 2;
    Plotly.relayout(node, { width: wide, autosize: false });
  });
  addEventListener("beforeprint", () => { before = root.dataset.theme; setTheme("light"); printable(680); });
  addEventListener("afterprint", () => { setTheme(before || "light"); $$(".plot").forEach((node) => Plotly.relayout(node, { width: null, autosize: true })); });
  // A box that scrolls says so while part of its table is out of sight at the right.
  const cue = (box) => box.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 8);
  const grown = new ResizeObserver((entries) => entries.forEach((entry) => cue(entry.target)));
  $$(".scroll").forEach((box) => { grown.observe(box); box.addEventListener("scroll", () => cue(box), { passive: true }); });
  const copy = $("#copy");
  if (navigator.clipboard) {
    copy.hidden = false;
    copy.addEventListener("click", () => navigator.clipboard.writeText($("#command-lines").textContent).then(() => { copy.textContent = "Copied"; }, () => { copy.textContent = "Not allowed here"; }));
  }
})();
