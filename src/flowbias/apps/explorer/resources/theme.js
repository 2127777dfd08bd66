// Before anything is painted: the reader's choice, or what their system prefers.
"use strict";
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem("flowbias-theme");
  const apply = () => {
    const theme = chosen() ?? (system.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    dispatchEvent(new CustomEvent("theme"));
  };
  window.switchTheme = () => {
    const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("flowbias-theme", other);
    apply();
  };
  system.addEventListener("change", apply);
  apply();
})();
