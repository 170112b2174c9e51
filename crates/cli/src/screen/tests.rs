use super::*;
use crate::board::fixtures::{after, between};
use control::snapshot::Snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn screen() -> Screen {
    let board = between(Some(&after(1)), &after(2));
    Screen::new("127.0.0.1:4421".to_owned(), board)
}

/// The lines of a terminal of that size, without the blanks at their ends.
fn seen(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal
        .draw(|frame| screen.draw(frame.area(), frame.buffer_mut()))
        .expect("it is drawn");
    let cells = terminal.backend().buffer().content();
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    };
    cells.chunks(width.into()).map(line).collect()
}

#[test]
fn a_usual_terminal_has_all_panes() {
    assert_eq!(
        seen(&mut screen(), 80, 24),
        [
            "127.0.0.1:4421: up 1d 1:00:02, 0 connections, 1 controllers, 1/2 threads",
            "TENANTS",
            "device  tenant  class          reserved  IOPS   B/s  err/s  spent/s  earned/s",
            "slow    (all)   1000 tokens/s       600   400  1.4M      0      920      2400",
            "slow    backup  weight 20             0   300  1.1M      0      690      1800",
            "slow    db      p95 500us           600   100  380K      0      230       600",
            "CORES",
            "core  class       busy  queues  outstanding  load  rx quanta/s  tx quanta/s",
            "   0  latency      25%       2          64K   32K           11           13",
            "   0  throughput   25%       2          64K   32K          110          130",
            "   1  latency      25%       2          64K   32K           11           13",
            "   1  throughput   25%       2          64K   32K          110          130",
            "NAMESPACES",
            "device  nsid  read/s  read B/s    p50    p95    p99  write/s  write B/s    p50",
            "slow       1     100      400K  100us  500us  2.0ms      200       800K  100us",
            "QUEUES",
            "cntlid  qid  core  depth  hdgst  ddgst  peer            host",
            "     3    1     0    128  yes    no     127.0.0.1:4420  nqn.2026-11.com.example:",
            "     3    2     1    128  yes    no     127.0.0.1:4420  nqn.2026-11.com.example:",
            "",
            "",
            "",
            "",
            "q quit  Tab pane  arrows scroll  s sort",
        ]
    );
}

#[test]
fn a_tiny_terminal_has_the_pane_in_focus() {
    let mut screen = screen();
    assert_eq!(
        seen(&mut screen, 20, 5),
        [
            "127.0.0.1:4421: up 1",
            "TENANTS 1-1 of 3",
            "device  tenant  clas",
            "slow    (all)   1000",
            "q quit  Tab pane  ar",
        ]
    );
    screen.press(Key::NextPane);
    screen.press(Key::Down);
    // What is busy has no room, and half a number would be another.
    assert_eq!(
        seen(&mut screen, 20, 5)[1..4],
        ["CORES 2-2 of 4", "core  class", "   0  throughput"]
    );
}

#[test]
fn no_size_is_too_small_or_too_large() {
    let keys = [
        Key::NextPane,
        Key::Last,
        Key::PageDown,
        Key::Right,
        Key::NextSort,
        Key::PreviousPane,
        Key::PageUp,
        Key::PreviousSort,
        Key::Down,
        Key::Left,
        Key::Up,
        Key::First,
    ];
    let nothing = between(None, &Snapshot::default());
    for mut screen in [screen(), Screen::new(String::new(), nothing)] {
        screen.fail("nobody is there");
        for height in 1..40 {
            for width in [1, 2, 19, 80, 300] {
                let lines = seen(&mut screen, width, height).len();
                assert_eq!(lines, usize::from(height));
                screen.press(keys[usize::from(height + width) % keys.len()]);
            }
        }
    }
}

#[test]
fn scrolling_stays_on_the_table() {
    let mut screen = screen();
    for _ in 0..100 {
        screen.press(Key::Down);
        screen.press(Key::Right);
    }
    let lines = seen(&mut screen, 30, 6);
    assert_eq!(lines[1], "TENANTS 2-3 of 3");
    assert_eq!(lines[4], "slow    db      no");
    screen.press(Key::First);
    for _ in 0..100 {
        screen.press(Key::Left);
    }
    let lines = seen(&mut screen, 30, 6);
    assert_eq!(lines[1], "TENANTS 1-2 of 3");
    assert_eq!(lines[3], "slow    (all)   1000 tokens/s");
}

#[test]
fn sorting_leaves_a_device_before_its_tenants() {
    let mut screen = screen();
    let names = |screen: &mut Screen| -> Vec<String> {
        let lines = seen(screen, 80, 24);
        let name = |line: &String| line.split_whitespace().nth(1).map(str::to_owned);
        lines[3..6].iter().filter_map(name).collect()
    };
    assert_eq!(names(&mut screen), ["(all)", "backup", "db"]);
    // By reserved tokens, most first.
    for _ in 0..4 {
        screen.press(Key::NextSort);
    }
    assert_eq!(seen(&mut screen, 80, 24)[1], "TENANTS by reserved");
    assert_eq!(names(&mut screen), ["(all)", "db", "backup"]);
    for _ in 0..3 {
        screen.press(Key::PreviousSort);
    }
    assert_eq!(seen(&mut screen, 80, 24)[1], "TENANTS by device");
    assert_eq!(names(&mut screen), ["(all)", "backup", "db"]);
    screen.press(Key::PreviousSort);
    assert_eq!(seen(&mut screen, 80, 24)[1], "TENANTS");
    screen.press(Key::PreviousSort);
    assert_eq!(seen(&mut screen, 80, 24)[1], "TENANTS by overruns");
}

#[test]
fn an_error_is_one_line_until_there_is_a_board_again() {
    let mut screen = screen();
    screen.fail("nobody\n\u{1b}[2Jis there");
    let lines = seen(&mut screen, 80, 24);
    assert_eq!(lines[23], r"retrying: nobody\n\u{1b}[2Jis there");
    assert_eq!(lines[1], "TENANTS");
    screen.show(between(None, &after(9)));
    let lines = seen(&mut screen, 80, 24);
    assert_eq!(lines[23], KEYS);
    assert!(lines[0].contains("1:00:09"), "{}", lines[0]);
}

#[test]
fn rows_that_have_gone_leave_no_hole() {
    let mut screen = screen();
    screen.press(Key::Last);
    let mut fewer = after(3);
    fewer.devices[0].tenants.truncate(1);
    screen.show(between(None, &fewer));
    let lines = seen(&mut screen, 80, 7);
    assert_eq!(lines[1], "TENANTS");
    assert!(lines[3].starts_with("slow    (all)"), "{lines:?}");
    assert!(lines[4].starts_with("slow    backup"), "{lines:?}");
}
