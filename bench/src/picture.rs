//! Line charts as SVG text, one below the other.

use std::fmt::Write as _;

use crate::report::number;

/// A chart with one or more lines.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x_label: String,
    pub(crate) y_label: String,
    /// Places on the horizontal axis that get a text.
    pub(crate) x_ticks: Vec<(f64, String)>,
    pub(crate) log_y: bool,
    pub(crate) series: Vec<Series>,
}

/// One line.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 6] = ["#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a"];

/// All charts in one picture.
pub(crate) fn draw(title: &str, charts: &[Chart]) -> String {
    let mut svg = String::new();
    let height = 30.0 + HEIGHT * (charts.len() as f64);
    write(
        &mut svg,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"16\">{}</text>\n",
            escaped(title)
        ),
    );
    for (index, chart) in charts.iter().enumerate() {
        let y = 30.0 + HEIGHT * (index as f64);
        write(&mut svg, format_args!("<g transform=\"translate(0,{y})\">\n"));
        chart.draw(&mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// From values to places on the page.
struct Scale {
    x: (f64, f64),
    y: (f64, f64),
    log_y: bool,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let xs = points().map(|point| point.0).chain(chart.x_ticks.iter().map(|tick| tick.0));
        let x = xs.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        let top = points().map(|point| point.1).fold(1e-3, f64::max);
        let bottom = points().map(|point| point.1).fold(top, f64::min).max(1e-3);
        let y = if chart.log_y {
            (bottom.log10().floor(), top.log10().ceil().max(bottom.log10().floor() + 1.0))
        } else {
            (0.0, top * 1.1)
        };
        Self { x: if x.0 < x.1 { x } else { (x.0 - 1.0, x.0 + 1.0) }, y, log_y: chart.log_y }
    }

    fn x(&self, x: f64) -> f64 {
        LEFT + (x - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, y: f64) -> f64 {
        let y = if self.log_y { y.max(1e-3).log10() } else { y };
        let share = (y - self.y.0) / (self.y.1 - self.y.0);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    fn y_ticks(&self) -> Vec<f64> {
        if self.log_y {
            let decades = (-3..9).filter(|&d| (self.y.0..=self.y.1).contains(&f64::from(d)));
            decades.map(|decade| 10f64.powi(decade)).collect()
        } else {
            (0..=4).map(|step| self.y.1 * f64::from(step) / 4.0).collect()
        }
    }
}

impl Chart {
    fn draw(&self, svg: &mut String) {
        let scale = Scale::of(self);
        let title = escaped(&self.title);
        write(svg, format_args!("<text x=\"{LEFT}\" y=\"24\" font-size=\"14\">{title}</text>\n"));
        for tick in scale.y_ticks() {
            let (y, right) = (scale.y(tick), WIDTH - RIGHT);
            write(
                svg,
                format_args!(
                    "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" \
                     stroke=\"#d0d7de\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                    LEFT - 6.0,
                    y + 4.0,
                    number(tick)
                ),
            );
        }
        for (x, text) in &self.x_ticks {
            let (x, y, text) = (scale.x(*x), HEIGHT - BOTTOM + 16.0, escaped(text));
            write(
                svg,
                format_args!("<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>\n"),
            );
        }
        let (middle, low) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 14.0);
        let (x_label, y_label) = (escaped(&self.x_label), escaped(&self.y_label));
        write(
            svg,
            format_args!(
                "<text x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">{x_label}</text>\n\
                 <text x=\"{LEFT}\" y=\"{}\" text-anchor=\"end\">{y_label}</text>\n",
                TOP - 10.0
            ),
        );
        for (index, (series, colour)) in self.series.iter().zip(COLOURS.iter().cycle()).enumerate()
        {
            series.draw(svg, &scale, colour);
            let x = LEFT + 10.0 + 180.0 * (index as f64);
            write(
                svg,
                format_args!(
                    "<rect x=\"{x}\" y=\"34\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
                     <text x=\"{}\" y=\"43\">{}</text>\n",
                    x + 15.0,
                    escaped(&series.name)
                ),
            );
        }
    }
}

impl Series {
    fn draw(&self, svg: &mut String, scale: &Scale, colour: &str) {
        let mut line = String::new();
        for &(x, y) in &self.points {
            let (x, y) = (scale.x(x), scale.y(y));
            write(&mut line, format_args!("{x:.1},{y:.1} "));
            write(
                svg,
                format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>\n"),
            );
        }
        write(
            svg,
            format_args!(
                "<polyline points=\"{line}\" fill=\"none\" stroke=\"{colour}\" \
                 stroke-width=\"1.5\"/>\n"
            ),
        );
    }
}

fn write(svg: &mut String, text: std::fmt::Arguments<'_>) {
    svg.write_fmt(text).expect("writing to a string does not fail");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_stays_inside_its_page_and_escapes_its_texts() {
        let chart = Chart {
            title: "a < b & c".to_owned(),
            x_label: String::new(),
            y_label: String::new(),
            x_ticks: vec![(0.0, "zero".to_owned())],
            log_y: true,
            series: vec![Series { name: "one".to_owned(), points: vec![(0.0, 0.0), (3.0, 5e4)] }],
        };
        let svg = draw("x", &[chart]);
        assert!(svg.contains("a &lt; b &amp; c"));
        let heights = svg.split("cy=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        for height in heights.map(|text| text.parse::<f64>().unwrap()) {
            assert!((0.0..=HEIGHT).contains(&height), "{height}");
        }
    }
}
