//! `switchyard top`: live statistics of a running target.

use super::signals;
use crate::args::TopArgs;
use crate::board::{Board, Sample};
use crate::exit::Outcome;
use crate::output::Output;
use crate::screen::{Key, Screen};
use anyhow::{Context as _, Result};
use config::with_causes;
use control::client::{self, Interface, Method, ask};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

/// Longest delay until a new sample is drawn or a signal handled.
const TICK: Duration = Duration::from_millis(100);

/// Carries it out.
///
/// # Errors
/// A target that is unreachable at start, or a terminal that cannot be used.
pub fn run(args: &TopArgs, output: Output) -> Result<Outcome> {
    let api = args.api.interface();
    let first = look(&api)?;
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if args.once || output.json || !terminal {
        thread::sleep(args.interval);
        let board = Board::between(Some(&first), &look(&api)?);
        output.result(&board, &board)?;
    } else {
        watch(args, api, first)?;
    }
    Ok(Outcome::Done)
}

fn look(api: &Interface) -> Result<Sample> {
    client::read(&ask(api, Method::GET, "/v1/stats", None)?)
}

fn watch(args: &TopArgs, api: Interface, first: Sample) -> Result<()> {
    let stop = signals::stop_flag()?;
    let screen = Screen::new(api.address.to_string(), Board::between(None, &first));
    let (sender, boards) = sync_channel(1);
    let interval = args.interval;
    // Never joined: a request to the target may take long.
    thread::Builder::new()
        .name("samples".to_owned())
        .spawn(move || keep_looking(&api, interval, first, &sender))
        .context("cannot start a thread")?;
    // Before the terminal is taken: that may fail half way.
    let _restored = Restored;
    let terminal = ratatui::try_init().context("cannot take over the terminal")?;
    converse(terminal, screen, &boards, &stop)
}

/// Gives the terminal back when it is dropped. The library's hook does so before a panic is told.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing.
        let _ = ratatui::try_restore();
    }
}

fn keep_looking(
    api: &Interface,
    interval: Duration,
    mut earlier: Sample,
    boards: &SyncSender<Result<Board>>,
) {
    loop {
        thread::sleep(interval);
        let board = look(api).map(|later| {
            let board = Board::between(Some(&earlier), &later);
            earlier = later;
            board
        });
        if boards.send(board).is_err() {
            return;
        }
    }
}

fn converse(
    mut terminal: ratatui::DefaultTerminal,
    mut screen: Screen,
    boards: &Receiver<Result<Board>>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut changed = true;
    while !stop.load(Ordering::Relaxed) {
        if changed {
            terminal
                .draw(|frame| screen.draw(frame.area(), frame.buffer_mut()))
                .context("cannot draw on the terminal")?;
        }
        changed = false;
        if event::poll(TICK).context("cannot read the terminal's keys")? {
            // A new size is found when it is drawn on.
            let event = event::read().context("cannot read the terminal's keys")?;
            let key = if let Event::Key(key) = event {
                meaning(key)
            } else {
                None
            };
            match key {
                Some(Meaning::Quit) => return Ok(()),
                Some(Meaning::See(key)) => screen.press(key),
                None => {}
            }
            changed = true;
        }
        match boards.try_recv() {
            Ok(Ok(board)) => screen.show(board),
            Ok(Err(error)) => screen.fail(&with_causes(&error)),
            Err(TryRecvError::Empty) => continue,
            Err(TryRecvError::Disconnected) => anyhow::bail!("the sampling thread has ended"),
        }
        changed = true;
    }
    Ok(())
}

/// The meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Quit,
    See(Key),
}

fn meaning(key: KeyEvent) -> Option<Meaning> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(Meaning::See(match key.code {
        KeyCode::Char('c') if control => return Some(Meaning::Quit),
        KeyCode::Char(_) if control => return None,
        KeyCode::Char('q') => return Some(Meaning::Quit),
        KeyCode::Char('s') => Key::NextSort,
        KeyCode::Char('S') => Key::PreviousSort,
        KeyCode::Tab => Key::NextPane,
        KeyCode::BackTab => Key::PreviousPane,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::First,
        KeyCode::End => Key::Last,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(code: KeyCode, modifiers: KeyModifiers) -> Option<Meaning> {
        meaning(KeyEvent::new(code, modifiers))
    }

    #[test]
    fn only_q_and_control_c_quit() {
        let quits = |key, modifiers| pressed(key, modifiers) == Some(Meaning::Quit);
        assert!(quits(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(quits(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!quits(KeyCode::Char('c'), KeyModifiers::NONE));
        assert_eq!(pressed(KeyCode::Char('q'), KeyModifiers::CONTROL), None);
        assert_eq!(pressed(KeyCode::Esc, KeyModifiers::NONE), None);
        let tab = pressed(KeyCode::Tab, KeyModifiers::NONE);
        assert_eq!(tab, Some(Meaning::See(Key::NextPane)));
    }
}
