"use strict";

// Keys click the element whose data-key matches, so that keys and buttons cannot diverge.
const KEYS_OFF = "omniroute-keys-off";
const FADE_MS = 10000;

const isTyping = (target) => target.closest("input, select, textarea, [contenteditable]") !== null;

const moveFocus = (step) => {
  const buttons = [...document.querySelectorAll("table.memories .actions > button")];
  if (buttons.length === 0) return;
  const at = buttons.indexOf(document.activeElement);
  buttons[Math.min(buttons.length - 1, Math.max(0, at + step))].focus();
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

// Browsers without invoker commands open their dialogs here.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[command='show-modal']");
  if (button === null || "command" in HTMLButtonElement.prototype) return;
  document.getElementById(button.getAttribute("commandfor"))?.showModal();
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
  if (notice !== null) fading = setTimeout(() => { notice.hidden = true; }, FADE_MS);
};
document.addEventListener("htmx:after:swap", fadeNotice);

const warn = (text) => {
  const alert = document.getElementById("alert");
  alert.textContent = text;
  alert.hidden = false;
  setTimeout(() => { alert.hidden = true; }, FADE_MS);
};
document.addEventListener("htmx:error", () => warn("The console does not answer. Load the page again."));

document.addEventListener("DOMContentLoaded", () => {
  const keys = document.getElementById("keys-on");
  if (keys !== null) keys.checked = !localStorage.getItem(KEYS_OFF);
  fadeNotice();
});
