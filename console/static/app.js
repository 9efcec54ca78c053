"use strict";

const KEYS_OFF = "omniroute-keys-off";
const FADE_MS = 10000;
const byId = (id) => document.getElementById(id);

// Keys click the element whose data-key matches, so that keys and buttons cannot diverge.
const isTyping = (target) => target.closest("input, select, textarea, [contenteditable]") !== null;
const rowActions = () => [...document.querySelectorAll("table.memories .actions > a")];

const moveFocus = (step) => {
  const actions = rowActions();
  if (actions.length === 0) return;
  const at = actions.indexOf(document.activeElement);
  actions[Math.min(actions.length - 1, Math.max(0, at + step))].focus();
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (localStorage.getItem(KEYS_OFF) || document.querySelector("dialog[open]")) return;
  if (event.key === "j" || event.key === "k") return moveFocus(event.key === "j" ? 1 : -1);
  if (event.key === "#" && document.activeElement.closest(".actions")) return document.activeElement.click();
  const element = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (element === null) return;
  event.preventDefault();
  if (element.matches("input")) element.focus();
  else element.click();
});

const copy = async (button) => {
  await navigator.clipboard.writeText(byId(button.dataset.copy).textContent);
  byId("status").textContent = button.textContent = "Copied";
};

document.addEventListener("click", (event) => {
  const button = event.target.closest("[command='show-modal'], [data-copy], dialog [data-close]");
  if (button === null) return;
  if (button.dataset.copy) return copy(button);
  if (button.matches("[data-close]")) {
    event.preventDefault();
    return button.closest("dialog").close();
  }
  // Browsers without invoker commands open their dialogs here.
  if (!("command" in HTMLButtonElement.prototype)) byId(button.getAttribute("commandfor")).showModal();
});

document.addEventListener("change", (event) => {
  if (event.target.id !== "keys-on") return;
  if (event.target.checked) localStorage.removeItem(KEYS_OFF);
  else localStorage.setItem(KEYS_OFF, "1");
});

let fading = 0;
const fadeNotice = () => {
  clearTimeout(fading);
  const notice = document.querySelector("[data-fades]:not([hidden])");
  if (notice === null) return;
  // Nothing vanishes from under a pointer or a focus.
  const fade = () => {
    if (notice.matches(":hover, :focus-within")) fading = setTimeout(fade, 1000);
    else notice.hidden = true;
  };
  fading = setTimeout(fade, FADE_MS);
};

const warn = (text) => {
  const retry = document.createElement("a");
  retry.href = location.href;
  retry.textContent = "Try again";
  byId("alert").replaceChildren(`${text} `, retry);
  byId("alert").hidden = false;
};

const setBusy = (busy) => byId("results")?.setAttribute("aria-busy", busy);

let focusedRow = -1;
document.addEventListener("htmx:before:request", (event) => {
  byId("alert").hidden = true;
  setBusy(event.detail.ctx.target?.id === "results");
  // The question is answered: the dialog goes before the row does.
  event.target.closest("dialog")?.close();
});
document.addEventListener("htmx:before:response", (event) => {
  const { response, hx } = event.detail.ctx;
  if (response.status < 400 || hx.retarget || hx.redirect) return;
  // An error that the console did not write, e.g. of a gateway in front of it: never show its page.
  event.preventDefault();
  warn(`The console answered with the error ${response.status}.`);
});
document.addEventListener("htmx:before:swap", () => { focusedRow = rowActions().indexOf(document.activeElement); });
document.addEventListener("htmx:after:swap", (event) => {
  if (event.detail.ctx?.target?.id === "dialog") return byId("dialog").showModal();
  fadeNotice();
  if (focusedRow < 0 || document.activeElement !== document.body) return;
  const actions = rowActions();
  (actions[Math.min(focusedRow, actions.length - 1)] ?? byId("results")).focus();
});
document.addEventListener("htmx:finally:request", () => setBusy(false));
document.addEventListener("htmx:error", () => warn("The console does not answer."));

document.addEventListener("DOMContentLoaded", () => {
  document.documentElement.dataset.script = "on";
  byId("keys-on").checked = !localStorage.getItem(KEYS_OFF);
  // Only pages from https or from this host may write to the clipboard.
  if (navigator.clipboard) document.documentElement.dataset.clipboard = "yes";
  fadeNotice();
});
