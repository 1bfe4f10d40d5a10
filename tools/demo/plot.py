"""loss.csv -> loss.svg (logarithmic loss over seconds).  usage: plot.py"""
import csv, math, os

HERE = os.path.dirname(os.path.abspath(__file__))
W, H, LEFT, BOTTOM, LOW, HIGH = 760, 360, 60, 40, 1e-3, 10
LINES = (("loss_a", "rows of 256", "#c33"), ("loss_b", "rows of 1,024", "#36c"), ("loss_c", "rows of 2,048 / 8,192", "#393"),
         ("loss_d", "uncertain text", "#c80"), ("draft_1", "first draft", "#999"))


def main():
    with open(f"{HERE}/loss.csv", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    end = float(rows[-1]["seconds"])
    x = lambda s: LEFT + (W - LEFT - 20) * s / end
    y = lambda v: 20 + (H - BOTTOM - 20) * (math.log10(HIGH) - math.log10(max(v, LOW))) / (math.log10(HIGH) - math.log10(LOW))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{W}" height="{H}" font-family="sans-serif" font-size="12">'
           f'<rect width="{W}" height="{H}" fill="white"/>']
    for k in range(-3, 2):
        out.append(f'<path d="M{LEFT} {y(10.0 ** k):.1f}H{W - 20}" stroke="#ddd"/><text x="8" y="{y(10.0 ** k) + 4:.1f}">1e{k}</text>')
    for s in range(0, int(end) + 1, 120):
        out.append(f'<text x="{x(s) - 10:.1f}" y="{H - 16}">{s} s</text>')
    q = next((float(r["seconds"]) for r in rows if r["four_bit"] == "1"), None)
    if q is not None:
        out.append(f'<path d="M{x(q):.1f} 20V{H - BOTTOM}" stroke="#888" stroke-dasharray="4"/>'
                   f'<text x="{x(q) + 4:.1f}" y="32">4-bit weights from here</text>')
    for i, (key, name, colour) in enumerate(LINES):
        v, points = None, []
        for r in rows:
            v = float(r[key]) if v is None else .7 * v + .3 * float(r[key])
            points.append(f"{x(float(r['seconds'])):.1f},{y(v):.1f}")
        out.append(f'<polyline fill="none" stroke="{colour}" points="{" ".join(points)}"/>'
                   f'<text x="{W - 170}" y="{50 + 16 * i}" fill="{colour}">{name}</text>')
    with open(f"{HERE}/loss.svg", "w", encoding="utf-8") as f:
        f.write("\n".join(out + ["</svg>\n"]))


if __name__ == "__main__":
    main()
