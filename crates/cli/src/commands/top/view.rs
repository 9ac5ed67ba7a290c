//! Where everything is on the screen.
//!
//! Whatever the size of the screen, nothing here fails: what does not fit is left out.

use std::cmp::Reverse;

use anyhow::anyhow;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};
use ratatui::{Frame, Terminal};

use super::Shown;
use super::sample::{Group, Reach, Sample, Topic};
use crate::args::TopOrder;
use crate::output::{cut, harmless};

/// Longest bar of the forecast.
const BAR_WIDTH: u64 = 24;
/// What the figures beside a name take, with the gaps between them; a name that does not fit beside
/// them is cut with `…`.
const TOPIC_FIGURES_WIDTH: u16 = 2 * (WIDE + 1);
const GROUP_FIGURES_WIDTH: u16 = (WIDE + 1) + (9 + 1) + (7 + 1);
/// Width of a large figure: up to 99 million in full.
const WIDE: u16 = 10;

/// A screen that can be read as text.
pub(super) trait Text {
    fn rows(&self) -> Vec<String>;
}

/// A frame as lines of text, without the empty ones at its end.
pub(super) fn text(shown: &Shown, width: u16, height: u16) -> anyhow::Result<Vec<String>> {
    let mut terminal = Terminal::new(TestBackend::new(width, height))
        .map_err(|error| anyhow!("no screen: {error}"))?;
    terminal.draw(|frame| draw(frame, shown)).map_err(|error| anyhow!("not drawn: {error}"))?;
    let mut rows = terminal.rows();
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    Ok(rows)
}

pub(super) fn draw(frame: &mut Frame<'_>, shown: &Shown) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(5),
        Constraint::Length(9),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [head, figures, middle, tables, foot] = areas.areas(frame.area());
    let [curve, forecast] = halves(middle);
    let look = Look { is_coloured: shown.is_coloured };
    frame.render_widget(Paragraph::new(header(shown, look)), head);
    frame.render_widget(footer(shown, look), foot);
    let Some(sample) = &shown.latest else {
        return;
    };
    frame.render_widget(self::figures(shown, sample, look), figures);
    draw_curve(frame, shown, curve, look);
    frame.render_widget(self::forecast(&sample.forecast, look), forecast);
    let [left, right] = halves(tables);
    frame.render_widget(topics(sample, shown.order, look, left.width), left);
    frame.render_widget(groups(sample, shown.order, look, right.width), right);
}

fn halves(area: Rect) -> [Rect; 2] {
    let halves = Layout::horizontal([Constraint::Percentage(45), Constraint::Percentage(55)]);
    halves.spacing(2).areas(area)
}

/// Colours, or none.
#[derive(Clone, Copy)]
struct Look {
    is_coloured: bool,
}

impl Look {
    fn strong(self) -> Style {
        if self.is_coloured { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() }
    }

    fn hue(self, colour: Color) -> Style {
        if self.is_coloured { Style::new().fg(colour) } else { Style::new() }
    }
}

fn header(shown: &Shown, look: Look) -> Line<'_> {
    let mut spans = vec![Span::styled("punctual", look.strong())];
    let server = harmless(&shown.server);
    let text = match &shown.latest {
        Some(sample) => format!(
            " {} at {server}  up {}  {}",
            sample.text("version"),
            sample.text("uptime"),
            sample.text("now")
        ),
        None => format!(" at {server}"),
    };
    spans.push(text.into());
    if shown.is_frozen {
        spans.push(Span::styled("  paused", look.hue(Color::Yellow)));
    }
    Line::from(spans)
}

fn footer(shown: &Shown, look: Look) -> Paragraph<'_> {
    if let Some(problem) = &shown.problem {
        return Paragraph::new(harmless(problem)).style(look.hue(Color::Red));
    }
    if !shown.is_live {
        return Paragraph::new("");
    }
    let order = match shown.order {
        TopOrder::Pending => "pending",
        TopOrder::Backlog => "backlog",
        TopOrder::Name => "name",
    };
    Paragraph::new(format!("q quit  p pause  s sort by {order}"))
}

fn figures<'a>(shown: &Shown, sample: &Sample, look: Look) -> Paragraph<'a> {
    let number = |name: &str| sample.number(name).map_or_else(|| "-".to_owned(), grouped);
    let mut rates = vec![Span::styled("per second  ", look.strong())];
    match &shown.rates {
        Some(known) => {
            let text: Vec<String> =
                known.each().map(|(name, rate)| format!("{name} {}", rate_text(rate))).collect();
            rates.push(text.join("  ").into());
        }
        None => rates.push("…".into()),
    }
    let standing = format!(
        "{} pending  {} lag  {} in flight  {} retrying  {} dead letters",
        number("pending"),
        number("lag"),
        number("in_flight"),
        number("retrying"),
        number("dead_letters")
    );
    let lateness = match sample.lateness() {
        Some((p50, p99)) => format!("p50 {p50:.2} ms  p99 {p99:.2} ms"),
        None => "nothing fired yet".to_owned(),
    };
    let connections = sample.connections().map(|(open, max)| format!("{open} of {max}"));
    let machine = format!(
        "memory {}  store {}  connections {}",
        bytes(sample.number("memory_bytes")),
        bytes(sample.number("store_bytes")),
        connections.unwrap_or_else(|| "-".to_owned())
    );
    Paragraph::new(vec![
        Line::from(rates),
        Line::from(vec![Span::styled("now         ", look.strong()), standing.into()]),
        Line::from(vec![Span::styled("lateness    ", look.strong()), lateness.into()]),
        Line::from(vec![Span::styled("machine     ", look.strong()), machine.into()]),
    ])
}

fn draw_curve(frame: &mut Frame<'_>, shown: &Shown, area: Rect, look: Look) {
    let most = shown.history.iter().max().copied().unwrap_or_default();
    let title = format!("delivered per second, at most {}", grouped(most));
    let block = Block::new().title(Span::styled(title, look.strong()));
    let width = usize::from(area.width);
    let skipped = shown.history.len().saturating_sub(width);
    let data: Vec<u64> = shown.history.iter().skip(skipped).copied().collect();
    // A line is left free below it.
    let area = Rect { height: area.height.saturating_sub(1), ..area };
    frame.render_widget(
        Sparkline::default().block(block).data(data).style(look.hue(Color::Cyan)),
        area,
    );
}

/// How much is due when, as bars: each span holds what is in the shorter ones too.
fn forecast<'a>(reaches: &[Reach], look: Look) -> Paragraph<'a> {
    let most = reaches.iter().map(|reach| reach.count).max().unwrap_or_default().max(1);
    let mut lines = vec![Line::from(Span::styled("due within", look.strong()))];
    if reaches.is_empty() {
        lines.push("nothing is pending".into());
    }
    for reach in reaches {
        let length = reach.count.saturating_mul(BAR_WIDTH).div_ceil(most);
        let bar = "█".repeat(usize::try_from(length).unwrap_or_default());
        lines.push(Line::from(vec![
            format!("{:>4}  ", reach.within).into(),
            Span::styled(bar, look.hue(Color::Cyan)),
            format!(" {}", grouped(reach.count)).into(),
        ]));
    }
    Paragraph::new(lines)
}

fn topics<'a>(sample: &Sample, order: TopOrder, look: Look, width: u16) -> Table<'a> {
    let letters = usize::from(width.saturating_sub(TOPIC_FIGURES_WIDTH));
    let mut topics: Vec<&Topic> = sample.topics.iter().collect();
    match order {
        TopOrder::Pending => topics.sort_by_key(|topic| Reverse((topic.pending, topic.backlog))),
        TopOrder::Backlog => topics.sort_by_key(|topic| Reverse((topic.backlog, topic.pending))),
        TopOrder::Name => topics.sort_by(|a, b| a.name.cmp(&b.name)),
    }
    let rows = topics.into_iter().map(|topic| {
        let [pending, backlog] = [topic.pending, topic.backlog].map(grouped);
        Row::new([cut(&topic.name, letters), right(&pending), right(&backlog)])
    });
    let widths = [Constraint::Min(6), Constraint::Length(WIDE), Constraint::Length(WIDE)];
    let head = ["TOPIC".to_owned(), right("PENDING"), right("BACKLOG")];
    Table::new(rows, widths).header(Row::new(head).style(look.strong()))
}

/// At the right of a column of figures.
fn right(text: &str) -> String {
    let width = usize::from(WIDE);
    format!("{text:>width$}")
}

fn groups<'a>(sample: &Sample, order: TopOrder, look: Look, width: u16) -> Table<'a> {
    let letters = usize::from(width.saturating_sub(GROUP_FIGURES_WIDTH));
    let mut groups: Vec<&Group> = sample.groups.iter().collect();
    match order {
        TopOrder::Name => groups.sort_by(|a, b| (&a.topic, &a.name).cmp(&(&b.topic, &b.name))),
        _ => groups.sort_by_key(|group| Reverse((group.lag, group.in_flight))),
    }
    let rows = groups.into_iter().map(|group| {
        let name = cut(&format!("{}/{}", group.topic, group.name), letters);
        let [lag, flight, dead] = [group.lag, group.in_flight, group.dead].map(grouped);
        Row::new([name, right(&lag), format!("{flight:>9}"), format!("{dead:>7}")])
    });
    let widths = [
        Constraint::Min(6),
        Constraint::Length(WIDE),
        Constraint::Length(9),
        Constraint::Length(7),
    ];
    let head = ["GROUP".to_owned(), right("LAG"), "IN FLIGHT".to_owned(), format!("{:>7}", "DEAD")];
    Table::new(rows, widths).header(Row::new(head).style(look.strong()))
}

/// `1,234,567`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

fn rate_text(rate: f64) -> String {
    if rate == 0.0 || rate >= 10.0 {
        return format!("{rate:.0}").parse().map_or_else(|_| "-".to_owned(), grouped);
    }
    format!("{rate:.1}")
}

/// `12.3 MB`
fn bytes(count: Option<u64>) -> String {
    let Some(count) = count else { return "-".to_owned() };
    let mut unit = (1, "B");
    for larger in [(1000, "kB"), (1_000_000, "MB"), (1_000_000_000, "GB")] {
        if count >= larger.0 {
            unit = larger;
        }
    }
    let (size, name) = unit;
    match size {
        1 => format!("{count} {name}"),
        _ => format!("{}.{} {name}", count / size, count % size * 10 / size),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::commands::top::sample::tests::sample;

    fn shown() -> Shown {
        let mut shown = Shown {
            server: "http://127.0.0.1:7070".to_owned(),
            latest: None,
            rates: None,
            history: VecDeque::new(),
            problem: None,
            order: TopOrder::Pending,
            is_frozen: false,
            is_live: true,
            is_coloured: false,
        };
        shown.take(Ok(sample("2030-01-31T00:00:00.000Z", 50)));
        shown.take(Ok(sample("2030-01-31T00:00:01.000Z", 1290)));
        shown
    }

    #[test]
    fn a_frame_tells_rates_lateness_topics_groups_and_what_is_due() {
        let text = text(&shown(), 110, 32).unwrap().join("\n");
        for part in [
            "punctual 0.1.0 at http://127.0.0.1:7070  up 1h",
            "delivered 1,240",
            "1,234 pending  7 lag  2 in flight",
            "p50 0.25 ms  p99 1.50 ms",
            "  1h  ████████████████████████ 30",
            "orders/billing",
            "s sort by pending",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.find("orders  ") < text.find("letters "), "the largest first\n{text}");
    }

    #[test]
    fn any_screen_is_drawn_on() {
        let mut shown = shown();
        shown.is_coloured = true;
        for (width, height) in [(1, 1), (5, 40), (200, 2), (30, 12), (500, 100)] {
            assert!(text(&shown, width, height).is_ok(), "{width} by {height}");
        }
        shown.take(Err(anyhow!("\u{1b}[2Jgone")));
        let text = text(&shown, 110, 32).unwrap().join("\n");
        assert!(text.contains("\\u{1b}[2Jgone") && text.contains("orders"), "{text}");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(rate_text(0.04), "0.0");
        assert_eq!(rate_text(1234.6), "1,235");
        assert_eq!(bytes(Some(12_345_678)), "12.3 MB");
        assert_eq!(bytes(Some(12)), "12 B");
        assert_eq!(bytes(None), "-");
    }
}
