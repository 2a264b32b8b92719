//! Charts as SVG text: bars, lines, and dots, on linear or logarithmic axes.
//!
//! A chart carries no colours and no fonts. Its parts have classes (`s0` to `s7` for the series,
//! `grid`, `tick`, ...), which the page's style sheet paints, once for light and once for dark.
//! Series differ by marker and dash as well as by colour. Each mark has a `<title>`, which
//! browsers show when the pointer rests on it.
//!
//! ```text
//!   legend
//!   y label
//!   |  tick -----------------------
//!   |  tick ------ marks ----------
//!   +------------------------------
//!      tick      x label      tick
//! ```

use std::fmt::Write;

/// How many series have their own colour.
pub const SERIES_MAX: usize = 8;

const LEGEND_ROW_HEIGHT: f64 = 22.0;

/// How values are laid out along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps for equal differences.
    Linear,
    /// Equal steps for equal factors.
    Log,
}

/// An axis: its range and what is written along it.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows.
    pub label: String,
    /// How.
    pub scale: Scale,
    /// Where it begins.
    pub min: f64,
    /// Where it ends.
    pub max: f64,
    /// Values with their texts.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis from 0 that holds all values, with round ticks.
    pub fn linear(label: &str, values: &[f64], text: impl Fn(f64) -> String) -> Axis {
        let max = values.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
        let step = round_step(if max > 0.0 { max / 5.0 } else { 1.0 });
        let count = (max / step).ceil().max(1.0) as usize;
        Axis {
            label: label.to_owned(),
            scale: Scale::Linear,
            min: 0.0,
            max: step * count as f64,
            ticks: (0..=count).map(|i| (step * i as f64, text(step * i as f64))).collect(),
        }
    }

    /// A logarithmic axis that holds all positive values, with ticks at 1, 2 and 5 or at powers.
    pub fn log(label: &str, values: &[f64], text: impl Fn(f64) -> String) -> Axis {
        let positive = || values.iter().copied().filter(|v| v.is_finite() && *v > 0.0);
        let low = positive().fold(f64::INFINITY, f64::min);
        let high = positive().fold(0.0, f64::max);
        let (low, high) = if high > 0.0 { (low, high) } else { (1.0, 10.0) };
        let min = steps_125(low).0;
        let mut max = steps_125(high).1;
        if max <= min {
            max = min * 10.0;
        }
        let decades = (max / min).log10();
        let mantissas: &[f64] = if decades > 3.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = min.log10().floor() as i32;
        let last = max.log10().ceil() as i32;
        let ticks = (first..=last)
            .flat_map(|power| mantissas.iter().map(move |m| m * 10_f64.powi(power)))
            .filter(|tick| (min * 0.999..=max * 1.001).contains(tick))
            .map(|tick| (tick, text(tick)))
            .collect();
        Axis { label: label.to_owned(), scale: Scale::Log, min, max, ticks }
    }

    /// Where a value lies, from 0 to 1; values outside are held at the ends.
    pub fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => (value - self.min) / (self.max - self.min),
            Scale::Log => {
                let value = value.max(f64::MIN_POSITIVE);
                (value / self.min).ln() / (self.max / self.min).ln()
            }
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// The next step of 1, 2, 2.5 or 5 times a power of ten that is not smaller.
fn round_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let mantissas = [1.0, 2.0, 2.5, 5.0, 10.0];
    let fits = |m: &&f64| **m * power >= rough * 0.999_999;
    mantissas.iter().find(fits).map_or(10.0 * power, |m| m * power)
}

/// The nearest of 1, 2, 5 times a power of ten below and above a positive value.
fn steps_125(value: f64) -> (f64, f64) {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
    let below = steps.iter().rev().copied().find(|s| *s <= value * 1.000_001).unwrap_or(power);
    let above = steps.iter().copied().find(|s| *s >= value * 0.999_999).unwrap_or(10.0 * power);
    (below, above)
}

/// A mark: a bar's height or a point.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Place on the x axis; of bars the index of the group.
    pub x: f64,
    /// Value.
    pub y: f64,
    /// Smallest and largest measurement, drawn as whisker or band.
    pub range: Option<(f64, f64)>,
    /// Text at the mark, where there is room.
    pub label: String,
    /// Text when the pointer rests on it.
    pub title: String,
}

/// Marks of one name and colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Which colour, from 0.
    pub colour: usize,
    /// Whether its line is dashed.
    pub is_dashed: bool,
    /// Its marks, by x.
    pub marks: Vec<Mark>,
}

/// How marks are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawing {
    /// Joined, with a marker at each.
    LinesAndMarkers,
    /// Joined only: for many points.
    Lines,
    /// Markers only.
    Markers,
}

/// Width and height of a chart in its own units.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

/// The area between the axes.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Frame {
    fn of(size: Size, legend_rows: usize, bottom: f64) -> Frame {
        let (left, right) = (66.0, 22.0);
        let top = 34.0 + LEGEND_ROW_HEIGHT * legend_rows as f64;
        Frame { left, top, width: size.width - left - right, height: size.height - top - bottom }
    }

    fn x(&self, place: f64) -> f64 {
        self.left + place * self.width
    }

    fn y(&self, place: f64) -> f64 {
        self.top + (1.0 - place) * self.height
    }
}

/// A chart of lines or dots.
pub fn lines(series: &[Series], x: &Axis, y: &Axis, drawing: Drawing, size: Size) -> String {
    let mut out = open(size, &format!("{} by {}", y.label, x.label));
    let rows = legend_rows(series, size.width);
    let frame = Frame::of(size, rows.len(), 50.0);
    legend(&mut out, &rows, &frame, drawing != Drawing::Lines, drawing != Drawing::Markers);
    y_axis(&mut out, &frame, y);
    x_ticks(&mut out, &frame, x);
    for one in series {
        let class = format!("s{}", one.colour % SERIES_MAX);
        let at = |mark: &Mark| (frame.x(x.place(mark.x)), frame.y(y.place(mark.y)));
        band(&mut out, &frame, one, &class, x, y);
        if drawing != Drawing::Markers {
            let dash = if one.is_dashed { " dashed" } else { "" };
            let points: Vec<String> =
                one.marks.iter().map(at).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let points = points.join(" ");
            let _ = write!(out, "<polyline class=\"line {class}{dash}\" points=\"{points}\"/>");
        }
        for mark in &one.marks {
            let (x, y) = at(mark);
            let title = escape(&mark.title);
            let _ = match drawing {
                // Without a visible marker there is still a place to rest the pointer on.
                Drawing::Lines => write!(
                    out,
                    "<circle class=\"touch\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\">\
                     <title>{title}</title></circle>"
                ),
                _ => write!(
                    out,
                    "<path class=\"marker {class}\" d=\"{}\"><title>{title}</title></path>",
                    marker(one.colour, x, y)
                ),
            };
        }
    }
    close(out)
}

/// A chart of grouped bars. A mark's `x` is the index of its group.
pub fn bars(groups: &[String], series: &[Series], y: &Axis, size: Size) -> String {
    let mut out = open(size, &y.label);
    let rows = legend_rows(series, size.width);
    let frame = Frame::of(size, rows.len(), 30.0);
    legend(&mut out, &rows, &frame, false, false);
    y_axis(&mut out, &frame, y);
    let group_width = frame.width / groups.len().max(1) as f64;
    let bar_width = (group_width * 0.78 / series.len().max(1) as f64).min(64.0);
    let gap = (bar_width * 0.08).min(3.0);
    for (index, name) in groups.iter().enumerate() {
        let x = frame.left + (index as f64 + 0.5) * group_width;
        let y = frame.y(0.0) + 20.0;
        let name = escape(name);
        let _ = write!(out, "<text class=\"tick group\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>");
    }
    for (position, one) in series.iter().enumerate() {
        let class = format!("s{}", one.colour % SERIES_MAX);
        for mark in &one.marks {
            let centre = frame.left + (mark.x + 0.5) * group_width;
            let left = centre + (position as f64 - series.len() as f64 / 2.0) * bar_width + gap;
            let width = bar_width - 2.0 * gap;
            let (top, base) = (frame.y(y.place(mark.y)), frame.y(0.0));
            let _ = write!(
                out,
                "<g class=\"bar {class}\"><title>{}</title><path d=\"{}\"/>",
                escape(&mark.title),
                rounded_bar(left, top, width, base)
            );
            let middle = left + width / 2.0;
            let mut label_y = top - 7.0;
            if let Some((low, high)) = mark.range {
                let (low, high) = (frame.y(y.place(low)), frame.y(y.place(high)));
                label_y = high - 7.0;
                // A whisker shorter than a line is thick says nothing.
                if low - high > 2.0 {
                    let (a, b) = (middle - 4.0, middle + 4.0);
                    let _ = write!(
                        out,
                        "<path class=\"whisker\" d=\"M{middle:.1} {low:.1}V{high:.1}M{a:.1} \
                         {low:.1}H{b:.1}M{a:.1} {high:.1}H{b:.1}\"/>"
                    );
                }
            }
            if bar_width >= mark.label.chars().count() as f64 * 6.2 {
                let label = escape(&mark.label);
                let _ = write!(
                    out,
                    "<text class=\"value\" x=\"{middle:.1}\" y=\"{label_y:.1}\">{label}</text>"
                );
            }
            out.push_str("</g>");
        }
    }
    close(out)
}

/// Text as XML wants it.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Not allowed in XML at all.
            control if control.is_control() && control != '\n' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

fn open(size: Size, label: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" \
         xmlns=\"http://www.w3.org/2000/svg\">",
        size.width,
        size.height,
        escape(label)
    )
}

fn close(mut out: String) -> String {
    out.push_str("</svg>\n");
    out
}

fn y_axis(out: &mut String, frame: &Frame, axis: &Axis) {
    let (left, right) = (frame.x(0.0), frame.x(1.0));
    for (value, text) in &axis.ticks {
        let y = frame.y(axis.place(*value));
        let class = if axis.place(*value) == 0.0 { "base" } else { "grid" };
        let (text_x, text_y, text) = (left - 10.0, y + 4.5, escape(text));
        let _ = write!(
            out,
            "<path class=\"{class}\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>\
             <text class=\"tick y\" x=\"{text_x:.1}\" y=\"{text_y:.1}\">{text}</text>"
        );
    }
    let label = escape(&axis.label);
    let y = frame.top - 14.0;
    let _ = write!(out, "<text class=\"axis\" x=\"8\" y=\"{y:.1}\">{label}</text>");
}

fn x_ticks(out: &mut String, frame: &Frame, axis: &Axis) {
    let bottom = frame.y(0.0);
    let (tick_end, text_y, label_y) = (bottom + 5.0, bottom + 20.0, bottom + 40.0);
    for (value, text) in &axis.ticks {
        let x = frame.x(axis.place(*value));
        let text = escape(text);
        let _ = write!(
            out,
            "<path class=\"base\" d=\"M{x:.1} {bottom:.1}V{tick_end:.1}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{text_y:.1}\">{text}</text>"
        );
    }
    let (x, label) = (frame.x(0.5), escape(&axis.label));
    let _ =
        write!(out, "<text class=\"axis middle\" x=\"{x:.1}\" y=\"{label_y:.1}\">{label}</text>");
}

/// The series by rows of the legend, each with its place; no rows for a single series.
fn legend_rows(series: &[Series], width: f64) -> Vec<Vec<(f64, &Series)>> {
    if series.len() < 2 {
        return Vec::new();
    }
    let mut rows = vec![Vec::new()];
    let mut x = 0.0;
    for one in series {
        let item = 56.0 + one.name.chars().count() as f64 * 7.0;
        if x > 0.0 && x + item > width - 80.0 {
            rows.push(Vec::new());
            x = 0.0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((x, one));
        }
        x += item;
    }
    rows
}

fn legend(
    out: &mut String,
    rows: &[Vec<(f64, &Series)>],
    frame: &Frame,
    has_marker: bool,
    has_line: bool,
) {
    for (row, items) in rows.iter().enumerate() {
        let y = 14.0 + row as f64 * LEGEND_ROW_HEIGHT;
        for (place, one) in items {
            legend_item(out, one, (frame.left + place, y), has_marker, has_line);
        }
    }
}

fn legend_item(
    out: &mut String,
    series: &Series,
    (x, y): (f64, f64),
    has_marker: bool,
    has_line: bool,
) {
    let class = format!("s{}", series.colour % SERIES_MAX);
    if has_line {
        let dash = if series.is_dashed { " dashed" } else { "" };
        let end = x + 24.0;
        let _ = write!(out, "<path class=\"line {class}{dash}\" d=\"M{x:.1} {y:.1}H{end:.1}\"/>");
    }
    if has_marker {
        let d = marker(series.colour, x + if has_line { 12.0 } else { 6.0 }, y);
        let _ = write!(out, "<path class=\"marker {class}\" d=\"{d}\"/>");
    }
    if !has_line && !has_marker {
        let top = y - 7.0;
        let _ = write!(
            out,
            "<rect class=\"swatch {class}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"13\" height=\"13\" \
             rx=\"3\"/>"
        );
    }
    let (x, y, name) = (x + if has_line { 32.0 } else { 20.0 }, y + 4.5, escape(&series.name));
    let _ = write!(out, "<text class=\"legend\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>");
}

/// The area between smallest and largest measurement of a line.
fn band(out: &mut String, frame: &Frame, series: &Series, class: &str, x: &Axis, y: &Axis) {
    let ranges: Vec<(f64, f64, f64)> = series
        .marks
        .iter()
        .filter_map(|mark| mark.range.map(|(low, high)| (mark.x, low, high)))
        .collect();
    if ranges.len() < 2 {
        return;
    }
    let upper = ranges.iter().map(|&(at, _, high)| (at, high));
    let lower = ranges.iter().rev().map(|&(at, low, _)| (at, low));
    let points: Vec<String> = upper
        .chain(lower)
        .map(|(at, v)| format!("{:.1},{:.1}", frame.x(x.place(at)), frame.y(y.place(v))))
        .collect();
    let _ = write!(out, "<polygon class=\"band {class}\" points=\"{}\"/>", points.join(" "));
}

/// A bar whose upper corners are round.
fn rounded_bar(left: f64, top: f64, width: f64, base: f64) -> String {
    let height = (base - top).max(0.0);
    let radius = 3.0_f64.min(width / 2.0).min(height);
    let right = left + width;
    let (inner_left, inner_right, shoulder) = (left + radius, right - radius, top + radius);
    format!(
        "M{left:.1} {base:.1}V{shoulder:.1}Q{left:.1} {top:.1} {inner_left:.1} {top:.1}\
         H{inner_right:.1}Q{right:.1} {top:.1} {right:.1} {shoulder:.1}V{base:.1}Z"
    )
}

/// A shape around a point: another for each series, so that colour is not needed to tell them.
fn marker(series: usize, x: f64, y: f64) -> String {
    let r = 4.5;
    match series % 4 {
        // Circle, square, triangle, diamond.
        0 => {
            let d = 2.0 * r;
            format!("M{:.1} {y:.1}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0Z", x - r)
        }
        1 => format!("M{:.1} {:.1}h8v8h-8Z", x - 4.0, y - 4.0),
        2 => format!("M{x:.1} {:.1}l5.2 9h-10.4Z", y - 5.6),
        _ => format!("M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5Z", y - 5.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_hold_the_values() {
        let axis = Axis::linear("y", &[3.0, 870_000.0, f64::NAN], |v| format!("{v}"));
        assert_eq!(axis.max, 1_000_000.0);
        assert_eq!(axis.ticks.len(), 6);
        assert_eq!(axis.place(500_000.0), 0.5);
        let empty = Axis::linear("y", &[], |v| format!("{v}"));
        assert!(empty.max > 0.0);
    }

    #[test]
    fn log_ticks_hold_the_values() {
        let axis = Axis::log("y", &[1.3, 430.0, 0.0, -1.0], |v| format!("{v}"));
        assert_eq!((axis.min, axis.max), (1.0, 500.0));
        let values: Vec<f64> = axis.ticks.iter().map(|(value, _)| *value).collect();
        assert_eq!(values.len(), 9);
        assert!((axis.place(500.0) - 1.0).abs() < 1e-9);
        assert_eq!(axis.place(-5.0), 0.0);
        let one = Axis::log("y", &[10.0], |v| format!("{v}"));
        assert!(one.max > one.min);
    }

    #[test]
    fn marks_of_any_value_stay_inside_and_texts_are_escaped() {
        let mark = |x, y| Mark {
            x,
            y,
            range: Some((y / 2.0, y * 2.0)),
            label: "<b>".into(),
            title: "a & \"b\" \u{7}".into(),
        };
        let series = Series {
            name: "<script>".into(),
            colour: 11,
            is_dashed: false,
            marks: vec![mark(1.0, f64::NAN), mark(2.0, 1e300), mark(3.0, -1.0)],
        };
        let all = [series.clone(), series];
        let size = Size { width: 400.0, height: 200.0 };
        let axis = Axis::log("y", &[1.0, 10.0], |v| format!("{v}"));
        for drawing in [Drawing::Lines, Drawing::Markers, Drawing::LinesAndMarkers] {
            let svg = lines(&all, &axis, &axis, drawing, size);
            assert!(!svg.contains("<script>") && !svg.contains("NaN") && !svg.contains('\u{7}'));
        }
        let svg = bars(&vec!["g".into(); 4], &all, &axis, size);
        assert!(!svg.contains("NaN") && !svg.contains("<b>"));
    }
}
