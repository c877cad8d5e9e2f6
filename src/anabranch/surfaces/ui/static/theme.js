// Sets the chosen colours before the first paint: light, dark, or as the system has it.
"use strict";
(() => {
  const chosen = (() => {
    try {
      return localStorage.getItem("anabranch-theme");
    } catch {
      return null;
    }
  })();
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
