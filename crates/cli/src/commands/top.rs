//! `punctual top`: a live view of the server, or one frame of it as text.
//!
//! A thread of its own asks the server, so that the keys answer also while the server does not. The
//! terminal is given back as it was, however the program ends: by a key, a signal or a panic.

mod sample;
mod view;

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use tokio::signal::unix::{SignalKind, signal};

use super::Session;
use crate::args::{TopOptions, TopOrder};
use crate::output::line;
use sample::{Rates, Sample};

/// Time between two looks at the server.
const INTERVAL: Duration = Duration::from_secs(1);
/// How soon a signal or news of the server are noticed.
const GLANCE: Duration = Duration::from_millis(100);
/// Rates that the curve remembers.
const HISTORY_MAX: usize = 240;
/// The screen where there is none.
const TEXT_WIDTH: u16 = 100;
const TEXT_HEIGHT: u16 = 28;

/// What a look at the server gave.
type Look = anyhow::Result<Sample>;

/// Everything the view shows.
pub(super) struct Shown {
    server: String,
    latest: Option<Sample>,
    rates: Option<Rates>,
    /// Deliveries in a second, the latest last.
    history: VecDeque<u64>,
    /// Why the last look failed.
    problem: Option<String>,
    order: TopOrder,
    is_frozen: bool,
    /// Whether somebody can press keys.
    is_live: bool,
    is_coloured: bool,
}

impl Shown {
    fn new(session: &Session, order: TopOrder) -> Self {
        Self {
            server: session.client.server().to_owned(),
            latest: None,
            rates: None,
            history: VecDeque::with_capacity(HISTORY_MAX),
            problem: None,
            order,
            is_frozen: false,
            is_live: false,
            is_coloured: crate::output::is_coloured(),
        }
    }

    fn take(&mut self, look: Look) {
        let sample = match look {
            Ok(sample) => sample,
            Err(error) => {
                self.problem = Some(format!("{error:#}"));
                return;
            }
        };
        self.problem = None;
        if let Some(before) = &self.latest {
            self.rates = Rates::between(before, &sample);
            if self.history.len() == HISTORY_MAX {
                self.history.pop_front();
            }
            self.history.push_back(self.rates.as_ref().map_or(0, Rates::delivered_rounded));
        }
        self.latest = Some(sample);
    }
}

pub(super) fn run(session: &Arc<Session>, options: &TopOptions) -> anyhow::Result<()> {
    if session.json {
        return line(&session.client.get("/v1/stats")?.to_string());
    }
    if options.once || !io::stdout().is_terminal() {
        return once(session, options.order());
    }
    // A server that is not there is told before the screen is taken.
    let first = sample::take(session)?;
    let mut shown = Shown::new(session, options.order());
    shown.is_live = true;
    shown.take(Ok(first));
    let is_ending = ends_on_signal()?;
    let looks = Looks::start(Arc::clone(session))?;
    let mut terminal = ratatui::try_init().context("no terminal")?;
    let outcome = watch(&mut terminal, &mut shown, &looks, &is_ending);
    ratatui::restore();
    outcome
}

impl TopOptions {
    const fn order(&self) -> TopOrder {
        self.sort
    }
}

/// Draws and listens to keys until it is to end.
fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    shown: &mut Shown,
    looks: &Looks,
    is_ending: &AtomicBool,
) -> anyhow::Result<()> {
    terminal.draw(|frame| view::draw(frame, shown))?;
    while !is_ending.load(Ordering::Relaxed) {
        let mut is_stale = false;
        if event::poll(GLANCE)? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => match pressed(key) {
                    Some(Key::Quit) => return Ok(()),
                    Some(Key::Freeze) => shown.is_frozen = !shown.is_frozen,
                    Some(Key::Sort) => shown.order = next(shown.order),
                    None => {}
                },
                _ => {}
            }
            // Also when the screen has another size now.
            is_stale = true;
        }
        while let Ok(look) = looks.news.try_recv() {
            if !shown.is_frozen {
                shown.take(look);
                is_stale = true;
            }
        }
        if is_stale {
            terminal.draw(|frame| view::draw(frame, shown))?;
        }
    }
    Ok(())
}

enum Key {
    Quit,
    Freeze,
    Sort,
}

fn pressed(key: KeyEvent) -> Option<Key> {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        // In raw mode an interrupt is a key like others.
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char('p' | ' ') => Some(Key::Freeze),
        KeyCode::Char('s') => Some(Key::Sort),
        _ => None,
    }
}

const fn next(order: TopOrder) -> TopOrder {
    match order {
        TopOrder::Pending => TopOrder::Backlog,
        TopOrder::Backlog => TopOrder::Name,
        TopOrder::Name => TopOrder::Pending,
    }
}

/// Set when somebody asks the program to end; the terminal is to be given back first.
fn ends_on_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let is_ending = Arc::new(AtomicBool::new(false));
    let ending = Arc::clone(&is_ending);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    drop(entered);
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
        });
        ending.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).context("no thread")?;
    Ok(is_ending)
}

/// A thread that looks at the server every second, until this is dropped.
struct Looks {
    news: Receiver<Look>,
    _stop: Sender<()>,
}

impl Looks {
    fn start(session: Arc<Session>) -> anyhow::Result<Self> {
        let (tell, news) = sync_channel(1);
        let (stop, stopped) = channel::<()>();
        let look = move || {
            // Nothing is ever sent: the other end goes, and that ends it.
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if tell.send(sample::take(&session)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("looks".to_owned()).spawn(look).context("no thread")?;
        Ok(Self { news, _stop: stop })
    }
}

/// One frame as text, with the rates of a second.
fn once(session: &Session, order: TopOrder) -> anyhow::Result<()> {
    let mut shown = Shown::new(session, order);
    shown.take(sample::take(session));
    // Nobody unparks this thread, so it is a pause.
    std::thread::park_timeout(INTERVAL);
    shown.take(Ok(sample::take(session)?));
    let size = terminal::size().ok().filter(|_| io::stdout().is_terminal());
    let (width, height) = size.unwrap_or((TEXT_WIDTH, TEXT_HEIGHT));
    for row in view::text(&shown, width, height)? {
        line(&row)?;
    }
    Ok(())
}

impl view::Text for Terminal<TestBackend> {
    fn rows(&self) -> Vec<String> {
        let buffer = self.backend().buffer();
        let width = usize::from(buffer.area.width.max(1));
        let row = |cells: &[ratatui::buffer::Cell]| {
            let text: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
            text.trim_end().to_owned()
        };
        buffer.content().chunks(width).map(row).collect()
    }
}
