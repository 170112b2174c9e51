//! Device memory is sent in whole blocks, even if the kernel stops within one and the block changes
//! before it accepts the rest.

use super::*;
use crate::memory::Region;

const BLOCK: usize = 512;
/// Many times the size of the socket buffers, but no more: all of it is rewritten before each of
/// the many system calls that send it.
const BYTES: usize = 2 << 20;

#[test]
fn a_block_that_changes_while_its_send_is_stalled_arrives_as_it_was_or_as_it_is() {
    let mut driver = small();
    let options = SocketOptions {
        // Smaller buffers hold less than a segment, and every round would wait for TCP's timers.
        buffer_bytes: 64 * 1024,
        ..SocketOptions::default()
    };
    let (near, far) = pair_with(&mut driver, &options);
    let region = Region::new(BYTES).expect("a mapping").handle();
    region.copy_in(0, &vec![1; BYTES]);
    // An odd header, so that the kernel's buffers do not end at block boundaries.
    let mut list = list(b"seven b");
    let payload = Memory::Region(region.clone());
    list.push_payload(IoSlice::new(payload, 0, BYTES));
    driver.submit(key(3), Op::Send { socket: near, list });
    let stalls = driver.stats().send_stalls;
    assert!(
        stalls > 0,
        "the socket's buffer took all of it: the test proves nothing"
    );

    let (mut got, mut completions, mut age) = (Vec::new(), Vec::new(), 1u8);
    receive(&mut driver, 4, far);
    while got.len() < 7 + BYTES {
        // All memory changes between any two system calls.
        age = age.wrapping_add(1);
        region.copy_in(0, &vec![age; BYTES]);
        driver
            .reap(
                Wait::Until(driver.now() + Nanos::from_secs(5)),
                &mut completions,
            )
            .expect("ok");
        for completion in completions.drain(..) {
            let Outcome::Received(received) = completion.outcome else {
                continue;
            };
            let (buffer, len) = received.rest.expect("data");
            got.extend_from_slice(&buffer[..len]);
            receive(&mut driver, 4, far);
        }
    }
    let ages: Vec<u8> = got[7..].chunks(BLOCK).map(|block| block[0]).collect();
    for (block, age) in got[7..].chunks(BLOCK).zip(&ages) {
        assert!(block.iter().all(|byte| byte == age), "a block of two ages");
    }
    let changes = ages.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes >= 4, "the memory changed {changes} times under way");
}
