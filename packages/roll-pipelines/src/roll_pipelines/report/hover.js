for (const chart of document.querySelectorAll("svg.chart")) {
  const points = JSON.parse(chart.dataset.points);
  const mark = chart.querySelector(".hover"), line = mark.querySelector("line"), dot = mark.querySelector("circle");
  const last = chart.closest("figure").querySelector(".last"), rest = last.textContent;
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect(), scale = chart.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale;
    const near = points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
    line.setAttribute("x1", near[0]); line.setAttribute("x2", near[0]);
    line.setAttribute("y1", 12); line.setAttribute("y2", 184);
    dot.setAttribute("cx", near[0]); dot.setAttribute("cy", near[1]);
    mark.style.visibility = "visible";
    last.textContent = `step ${near[2]}: ${near[3]}`;
  });
  chart.addEventListener("pointerleave", () => { mark.style.visibility = "hidden"; last.textContent = rest; });
}
