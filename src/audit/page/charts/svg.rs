//! Drawings as text. Every shape carries its colours as presentation attributes, so that a drawing can be read where
//! style sheets are stripped, and a class by which the page's style sheet gives it those of light and dark.

use std::fmt::Write as _;

/// Width of every drawing: with text of 14 units it is legible at 400 pixels, and two stand side by side at 1,280.
pub(in super::super) const WIDTH: f64 = 480.0;
/// Height of a line of text.
pub(super) const LINE: f64 = 18.0;

/// What a shape is for; the style sheet knows the class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Paint {
    class: &'static str,
    fill: &'static str,
    stroke: &'static str,
    width: &'static str,
}

const fn fill(class: &'static str, fill: &'static str) -> Paint {
    Paint { class, fill, stroke: "none", width: "0" }
}

const fn stroke(class: &'static str, stroke: &'static str, width: &'static str) -> Paint {
    Paint { class, fill: "none", stroke, width }
}

pub(super) const INK: Paint = fill("ink", "#1b2733");
pub(super) const MUTED: Paint = fill("muted", "#56626e");
pub(super) const GRID: Paint = stroke("grid", "#dfe4e8", "1");
pub(super) const AXIS: Paint = stroke("axis", "#8a949e", "1");
pub(super) const ZONE: Paint = fill("zone", "#d6e4d0");
pub(super) const ZONE_EDGE: Paint = stroke("zone-edge", "#7f9275", "1");
pub(super) const BAR: Paint = fill("bar", "#2c5d8a");
pub(super) const TRACK: Paint = fill("track", "#eef1f4");
pub(super) const GONE: Paint = Paint { class: "gone", fill: "none", stroke: "#8a949e", width: "1" };
pub(super) const OUTSIDE: Paint = fill("outside", "#a8391c");
pub(super) const OUTSIDE_LINE: Paint = stroke("outside-line", "#a8391c", "2");
pub(super) const PLAIN_LINE: Paint = stroke("plain-line", "#2c5d8a", "2");
pub(super) const HOLLOW: Paint =
    Paint { class: "hollow", fill: "#ffffff", stroke: "#2c5d8a", width: "1.6" };
pub(super) const UNSURE: Paint =
    Paint { class: "unsure", fill: "#ffffff", stroke: "#8a6100", width: "1.6" };
pub(super) const UNSURE_LINE: Paint = stroke("unsure-line", "#8a6100", "2");

/// Lines that are told apart by colour, dashes and letter.
pub(super) const SERIES: [(Paint, Paint, &str); 5] = [
    (stroke("s1", "#2c5d8a", "2"), fill("s1-fill", "#2c5d8a"), ""),
    (stroke("s2", "#a8391c", "2"), fill("s2-fill", "#a8391c"), "7 3"),
    (stroke("s3", "#2f6b4f", "2"), fill("s3-fill", "#2f6b4f"), "2 3"),
    (stroke("s4", "#6d4a8c", "2"), fill("s4-fill", "#6d4a8c"), "10 3 2 3"),
    (stroke("s5", "#8a6100", "2"), fill("s5-fill", "#8a6100"), "5 2 1 2 1 2"),
];

/// Where a text stands beside its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// What a drawing is called, and what it says to those who cannot see it.
#[derive(Debug, Clone)]
pub(in super::super) struct Caption {
    /// Its own on the page.
    pub(in super::super) id: String,
    pub(in super::super) title: String,
    pub(in super::super) description: String,
}

/// Lines in one drawing, at most.
pub(in super::super) const SERIES_MOST: usize = SERIES.len();

/// A drawing in the making.
pub(super) struct Svg {
    body: String,
    height: f64,
}

impl Svg {
    pub(super) fn new() -> Svg {
        Svg { body: String::new(), height: 0.0 }
    }

    fn reach(&mut self, y: f64) {
        self.height = self.height.max(y);
    }

    pub(super) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), paint: Paint) {
        self.reach(y + height);
        let (x, y, width, height) = (at(x), at(y), at(width.max(0.0)), at(height));
        self.shape(
            &format!("rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\""),
            paint,
        );
    }

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), paint: Paint) {
        self.reach(y1.max(y2));
        let (x1, y1, x2, y2) = (at(x1), at(y1), at(x2), at(y2));
        self.shape(&format!("line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\""), paint);
    }

    /// A line through points, with gaps as `dashes` says.
    pub(super) fn path(&mut self, points: &[(f64, f64)], paint: Paint, dashes: &str) {
        let dashes = if dashes.is_empty() {
            String::new()
        } else {
            format!(" stroke-dasharray=\"{dashes}\"")
        };
        self.shape(&format!("polyline points=\"{}\"{dashes}", listed(points)), paint);
    }

    /// A closed area that what lies below shines through.
    pub(super) fn area(&mut self, points: &[(f64, f64)], paint: Paint) {
        self.shape(&format!("polygon points=\"{}\" fill-opacity=\"0.13\"", listed(points)), paint);
    }

    /// A closed shape.
    pub(super) fn polygon(&mut self, points: &[(f64, f64)], paint: Paint) {
        self.shape(&format!("polygon points=\"{}\"", listed(points)), paint);
    }

    pub(super) fn circle(&mut self, (x, y): (f64, f64), radius: f64, paint: Paint) {
        self.shape(
            &format!("circle cx=\"{}\" cy=\"{}\" r=\"{}\"", at(x), at(y), at(radius)),
            paint,
        );
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        self.write(((x, y), anchor), text, INK, "");
    }

    pub(super) fn muted(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        self.write(((x, y), anchor), text, MUTED, " font-size=\"12.5\"");
    }

    pub(super) fn strong(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        self.write(((x, y), anchor), text, INK, " font-weight=\"600\"");
    }

    /// A text in the colour of a shape.
    pub(super) fn coloured(&mut self, point: (f64, f64), text: &str, paint: Paint) {
        self.write((point, Anchor::Start), text, paint, " font-weight=\"700\"");
    }

    fn write(
        &mut self,
        ((x, y), anchor): ((f64, f64), Anchor),
        text: &str,
        paint: Paint,
        more: &str,
    ) {
        self.reach(y + 4.0);
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (x, y, text) = (at(x), at(y), escaped(text));
        let Paint { class, fill, .. } = paint;
        let _ = write!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" class=\"{class}\" fill=\"{fill}\"{anchor}{more}>{text}</text>"
        );
    }

    fn shape(&mut self, element: &str, paint: Paint) {
        let Paint { class, fill, stroke, width } = paint;
        let _ = write!(self.body, "<{element} class=\"{class}\" fill=\"{fill}\"");
        if stroke != "none" {
            let _ = write!(self.body, " stroke=\"{stroke}\" stroke-width=\"{width}\"");
        }
        self.body.push_str("/>");
    }

    /// The whole element.
    pub(super) fn finish(self, caption: &Caption) -> String {
        let Caption { id, title, description } = caption;
        let (id, title, description) = (escaped(id), escaped(title), escaped(description));
        let (width, height) = (at(WIDTH), at(self.height.ceil() + 2.0));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" \
             font-family=\"-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif\" \
             font-size=\"14\"><title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{description}</desc>{}</svg>",
            self.body
        )
    }
}

/// Coordinates to a tenth: what no eye tells apart has the same bytes.
fn at(coordinate: f64) -> String {
    let text = format!("{coordinate:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_string() } else { text.to_string() }
}

fn listed(points: &[(f64, f64)]) -> String {
    let point = |(x, y): &(f64, f64)| format!("{},{}", at(*x), at(*y));
    points.iter().map(point).collect::<Vec<_>>().join(" ")
}

/// A text as it may stand in an element or an attribute.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_become_elements_or_end_an_attribute() {
        let mut svg = Svg::new();
        svg.text((1.0, 2.0), Anchor::End, "</text><script>alert('1')</script>");
        let caption = Caption {
            id: "f\"".to_string(),
            title: "a & b".to_string(),
            description: "<b onload=\"x\">".to_string(),
        };
        let drawn = svg.finish(&caption);
        assert!(!drawn.contains("<script") && !drawn.contains("<b "), "{drawn}");
        assert!(drawn.contains("a &amp; b") && drawn.contains("aria-labelledby=\"f&quot;-t"));
    }

    #[test]
    fn coordinates_have_one_spelling() {
        let shown = [0.0, -0.01, 1.0, 1.25, 1.249_999, -3.0].map(at);
        assert_eq!(shown, ["0", "0", "1", "1.2", "1.2", "-3"]);
    }
}
