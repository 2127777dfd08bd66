// The page's side: controls send what they are set to, answers are shown when figures have changed.
"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const byId = id => document.getElementById(id);
  const controlOf = one => byId(`control-${one.name}`);
  const of = kind => page.widgets.filter(one => one.kind === kind);
  // A moving slider sends at most this often, and not before its last picture is drawn,
  // unless that takes longer than the patience of a reader.
  const PACE = 30, PATIENCE = 400, TYPING = 300, ADDRESS_PAUSE = 300, PLAY_PACE = 80;

  // --- what is set -----------------------------------------------------------------------------
  const initial = Object.fromEntries(page.widgets.map(one => [one.name, one.value]));
  const readers = {
    slider: one => one.values[Number(controlOf(one).value)],
    choice: one => controlOf(one).value,
    text: one => controlOf(one).value,
  };
  const texts = () => Object.fromEntries(
    page.widgets.filter(one => one.kind in readers).map(one => [one.name, readers[one.kind](one)]));

  const speak = one => {
    const word = one.words[Number(controlOf(one).value)];
    controlOf(one).setAttribute("aria-valuetext", word);
    byId(`word-${one.name}`).textContent = word;
  };

  const presenting = () => document.body.classList.contains("presenting");
  let addressTimer = null;
  const writeAddress = () => {
    clearTimeout(addressTimer);
    addressTimer = setTimeout(() => {
      const query = new URLSearchParams({view: page.view, ...texts()});
      if (presenting()) query.set("present", "1");
      history.replaceState(null, "", `?${query}`);
    }, ADDRESS_PAUSE);
  };

  // --- asking ------------------------------------------------------------------------------------
  let model = null, serial = 0, drawn = 0, sentAt = 0, wanted = false, timer = null;
  const send = message => {
    serial += 1;
    sentAt = performance.now();
    if (page.answers) { show({serial, ...lookUp()}); return; }
    model.asked.data = {json: [JSON.stringify({serial, texts: texts(), ...message})]};
  };

  // --- pages without a server: every answer is here, and what they share in a pool -------------------
  const revived = new Map();
  const revive = value => value === null ? NaN : Array.isArray(value) ? value.map(revive) : value;
  const pooled = place => {
    if (!revived.has(place)) revived.set(place, revive(page.answers.pool[place]));
    return revived.get(place);
  };
  const moveMarks = data => {
    for (const figure of model.document.roots()) {
      for (const drawn of figure.renderers) {
        const source = drawn.data_source, columns = data[drawn.name]?.map(pooled);
        drawn.muted = columns === undefined && source.columns().length > 0;
        if (columns) source.data = Object.fromEntries(source.columns().map((name, k) => [name, columns[k]]));
      }
      for (const part of figure.references())
        if (part.type === "LegendItem") part.visible = part.renderers.some(one => one.data_source.get_length());
    }
  };
  const lookUp = () => {
    const set = texts(), found = page.answers.by_key[page.widgets.map(one => set[one.name]).join()];
    moveMarks(found.data);
    return {text: pooled(found.text), code: found.code.map(pooled).join("\n"), downloads: []};
  };
  const readAddress = () => {
    const asked = new URLSearchParams(location.search);
    for (const one of page.widgets)
      if (one.values.includes(asked.get(one.name))) controlOf(one).value = one.values.indexOf(asked.get(one.name));
  };
  const attempt = () => {
    clearTimeout(timer);
    if (!wanted || model === null) return;
    const waited = performance.now() - sentAt;
    const needed = drawn >= serial ? PACE : PATIENCE;
    if (waited < needed) { timer = setTimeout(attempt, needed - waited); return; }
    wanted = false;
    send({kind: "show"});
  };
  const ask = () => { wanted = true; writeAddress(); attempt(); };

  // --- answers -----------------------------------------------------------------------------------
  const complain = text => {
    byId("error").hidden = !text;
    byId("error").firstElementChild.textContent = text;
    document.body.classList.toggle("failed", Boolean(text));
  };
  // A file that was refused is not kept; the same one can be chosen again when it is mended.
  let sentFile = null;
  const forget = serial => { if (sentFile?.serial === serial) sentFile.control.value = ""; };
  const save = file => {
    const bytes = Uint8Array.from(atob(file.base64), letter => letter.charCodeAt(0));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes]));
    link.download = file.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  const offer = downloads => {
    byId("downloads").replaceChildren(...downloads.map(one => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = one.label;
      button.addEventListener("click", () => send({kind: "download", name: one.name}));
      return button;
    }));
  };
  const waiting = byId("text").textContent;
  const show = answer => {
    if (answer.file) save(answer.file);
    else if (answer.error) {
      complain(answer.error);
      forget(answer.serial);
      // Words of the last scene stay, faint; that one is being computed does not.
      if (byId("text").textContent === waiting) byId("text").textContent = "";
    }
    else {
      complain("");
      document.body.classList.remove("empty");
      const words = document.createElement("template");
      words.innerHTML = answer.text;  // rendered by the server, with every tag escaped
      // What is seen, beside the sliders; what else is to be said, below.
      byId("text").replaceChildren(words.content.firstElementChild);
      byId("more").replaceChildren(...words.content.children);
      byId("code").textContent = answer.code;
      offer(answer.downloads);
    }
    dress();
    // Bokeh paints in the next frame; in the one after that the reader has seen it.
    requestAnimationFrame(() => requestAnimationFrame(() => {
      drawn = Math.max(drawn, answer.serial);
      document.body.dataset.drawn = drawn;
      attempt();
      dispatchEvent(new CustomEvent("drawn"));
    }));
  };

  // --- colours of the figures: the page's own ------------------------------------------------------
  const canvases = [...document.querySelectorAll(".canvas")];
  const dress = () => {
    if (model === null) return;
    const style = getComputedStyle(document.documentElement);
    const [ink, soft, paper] =
      ["--ink", "--soft", "--paper"].map(name => style.getPropertyValue(name).trim());
    const [large, small] = presenting() ? ["22px", "18px"] : ["13px", "11px"];
    const axis = {
      axis_label_text_font_size: large, major_label_text_font_size: small,
      axis_label_text_color: ink, major_label_text_color: ink, axis_line_color: soft,
      major_tick_line_color: soft,
    };
    const bar = {title_text_color: ink, major_label_text_color: ink, background_fill_color: paper};
    const legend = {
      label_text_color: ink, title_text_color: ink, background_fill_color: paper,
      label_text_font_size: large,
      // Two entries to a row, more where there is room.
      ncols: Math.max(2, ...canvases.map(one => Math.floor(one.clientWidth / 215))),
    };
    const looks = {
      LinearAxis: axis, LogAxis: axis, CategoricalAxis: axis, Legend: legend, ColorBar: bar,
      Title: {text_color: ink}, Label: {text_color: ink},
    };
    for (const root of model.document.roots())
      for (const part of root.references())
        if (part.type in looks && part.attributes.tags?.includes("own colours") !== true)
          part.setv(looks[part.type], {sync: false});
  };

  // --- controls ----------------------------------------------------------------------------------
  const complainIfTooLarge = (one, file) => {
    if (file.size <= one.largest) return false;
    controlOf(one).value = "";
    complain(`${one.name}: must have at most ${one.largest} bytes, got ${file.size}. ` +
             "Use flowbias limit on the command line for larger files.");
    return true;
  };
  for (const one of of("slider"))
    controlOf(one).addEventListener("input", () => { speak(one); ask(); });
  for (const one of of("choice")) controlOf(one).addEventListener("change", ask);
  for (const one of of("text")) {
    let typing = null;
    controlOf(one).addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(ask, TYPING);
    });
  }
  for (const one of of("upload"))
    controlOf(one).addEventListener("change", () => {
      const file = controlOf(one).files[0];
      if (!file || complainIfTooLarge(one, file)) return;
      const reader = new FileReader();
      reader.addEventListener("load", () => {
        const base64 = reader.result.slice(reader.result.indexOf(",") + 1);
        send({kind: "upload", name: one.name, base64: file.size ? base64 : ""});
        sentFile = {serial, control: controlOf(one)};
      });
      reader.addEventListener("error", () => complain(`${one.label}: ${reader.error.message}`));
      reader.readAsDataURL(file);
    });
  // A strip of pictures that can be scrolled has to be reached by keys.
  new ResizeObserver(() => {
    const strip = byId("pictures");
    if (strip.scrollWidth > strip.clientWidth) strip.tabIndex = 0;
    else strip.removeAttribute("tabindex");
    dress();
  }).observe(byId("pictures"));
  byId("reset").addEventListener("click", () => { location.search = `?view=${page.view}`; });

  // --- play ----------------------------------------------------------------------------------------
  for (const button of document.querySelectorAll("[data-plays]")) {
    const one = page.widgets.find(widget => widget.name === button.dataset.plays);
    const slider = controlOf(one), count = Number(slider.max) + 1;
    let beat = null;
    const stop = () => {
      clearTimeout(beat);
      beat = null;
      button.textContent = "Play";
      button.setAttribute("aria-pressed", "false");
    };
    const step = () => {
      if (drawn < serial) { beat = setTimeout(step, PACE); return; }
      slider.value = (Number(slider.value) + one.plays + count) % count;
      speak(one);
      ask();
      beat = setTimeout(step, PLAY_PACE);
    };
    button.addEventListener("click", () => {
      if (beat !== null) { stop(); return; }
      button.textContent = "Stop";
      button.setAttribute("aria-pressed", "true");
      step();
    });
    slider.addEventListener("pointerdown", stop);
    slider.addEventListener("keydown", event => { if (event.key !== " ") stop(); });
  }

  // --- presenting: large type, one picture, and the keys that a clicker sends ------------------------
  const blocks = [...document.querySelectorAll(".control")], pictures = [...byId("pictures").children];
  const inside = block => block.querySelector("input, select");
  const among = (all, place) => all[Math.max(0, Math.min(place, all.length - 1))];
  const single = (all, one) => { for (const other of all) other.classList.toggle("current", other === one); };
  const current = () => document.querySelector(".control.current");
  const choose = block => { single(blocks, block); if (presenting()) inside(block).focus(); };
  const move = by => {
    const one = inside(current()), list = one.tagName === "SELECT";
    if (list) one.selectedIndex = Math.max(0, Math.min(one.selectedIndex + by, one.length - 1));
    else one.value = Number(one.value) + by;
    one.dispatchEvent(new Event(list ? "change" : "input"));
  };
  const play = () => {
    const mine = current().querySelector(".play") ?? document.querySelector(".play");
    mine?.click();
  };
  const turn = by => {
    const links = [...document.querySelectorAll("nav a")];
    const to = new URL(among(links, links.findIndex(link => link.ariaCurrent) + by).href);
    to.searchParams.set("present", "1");
    location.assign(to);
  };
  const present = on => {
    document.body.classList.toggle("presenting", on);
    byId("present").textContent = on ? "End" : "Present";
    byId("present").setAttribute("aria-pressed", String(on));
    if (on) choose(current());
    else byId("present").focus();
    writeAddress();
    dress();
  };
  const keys = {
    ArrowLeft: () => move(-1), ArrowRight: () => move(1), " ": play,
    ArrowUp: () => choose(among(blocks, blocks.indexOf(current()) - 1)),
    ArrowDown: () => choose(among(blocks, blocks.indexOf(current()) + 1)),
    PageUp: () => turn(-1), PageDown: () => turn(1), Escape: () => present(false),
  };
  pictures.forEach((picture, at) => { keys[at + 1] = () => single(pictures, picture); });
  // What is typed is typed: a text keeps all keys but those that it has no use for.
  const typed = key => document.activeElement.matches("[type=text]") && (key.length === 1 || /Left|Right/.test(key));
  addEventListener("keydown", event => {
    const taken = presenting() && !(event.ctrlKey || event.altKey || event.metaKey) && !typed(event.key);
    // A button is pressed by Space.
    if (!taken || !(event.key in keys) || (event.key === " " && event.target.matches("button"))) return;
    event.preventDefault();
    keys[event.key]();
  });
  for (const block of blocks) block.addEventListener("focusin", () => single(blocks, block));
  single(blocks, blocks.find(block => block.matches(".slider")) ?? blocks[0]);
  single(pictures, pictures[0]);
  byId("present").addEventListener("click", () => present(!presenting()));

  // --- copying, theme, a server that is gone --------------------------------------------------------
  byId("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(byId("code").textContent);
      byId("copied").textContent = "Copied.";
    } catch {
      byId("code").closest("details").open = true;
      getSelection().selectAllChildren(byId("code"));
      byId("copied").textContent = "Selected: press Ctrl-C.";
    }
    setTimeout(() => { byId("copied").textContent = ""; }, 3000);
  });
  const nameTheme = () => {
    const dark = document.documentElement.dataset.theme === "dark";
    byId("theme").setAttribute("aria-pressed", String(dark));
    dress();
  };
  byId("theme").addEventListener("click", () => window.switchTheme());
  addEventListener("theme", nameTheme);
  const comeBack = async () => {
    try {
      const answer = await fetch("explorer/explorer.css", {method: "HEAD", cache: "no-store"});
      if (answer.ok) { location.reload(); return; }
    } catch { /* still gone */ }
    setTimeout(comeBack, 1000);
  };
  const lost = () => { byId("gone").hidden = false; setTimeout(comeBack, 1000); };

  // --- when Bokeh has connected ----------------------------------------------------------------------
  const connect = () => {
    const opened = window.Bokeh?.documents.at(0);
    const asked = opened?.get_model_by_name("asked"), answer = opened?.get_model_by_name("answer");
    if (!(page.answers ? opened : asked && answer)) { setTimeout(connect, 20); return; }
    model = {document: opened, asked};
    answer?.properties.data.change.connect(() => show(JSON.parse(answer.data.json[0])));
    opened.on_event("connection_lost", lost);
    nameTheme();
    ask();
  };
  Bokeh.set_log_level("error");  // figures are empty until the first answer, of which it warns
  if (page.answers) readAddress();
  for (const one of of("slider")) speak(one);
  document.querySelector("nav [aria-current]")?.scrollIntoView({block: "nearest", inline: "center"});
  const room = matchMedia("(min-width: 58rem)").matches;
  if (room && new URLSearchParams(location.search).has("present")) present(true);
  connect();
})();
