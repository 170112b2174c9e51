//! Arrivals under all cuts of the network, and the state that each end sees.

use super::*;

fn pair(network: &mut Network, prng: &mut Prng) -> (u64, u64) {
    let address = network
        .listen("10.0.0.1:0".parse().expect("an address"), None)
        .expect("free");
    let near = network
        .connect(address, 1, Time(0), prng)
        .expect("not refused");
    let far = network.accept(address, Time::NEVER).expect("arrived");
    (near, far)
}

#[test]
fn bytes_arrive_in_order_however_they_are_cut_up() {
    let mut prng = Prng::from_seed(3);
    let mut network = Network::new(NetworkFaults::ROUGH);
    let (near, far) = pair(&mut network, &mut prng);
    let sent: Vec<u8> = (0..=255).cycle().take(5_000).collect();
    for chunk in sent.chunks(700) {
        network.send(near, chunk, false, Time(0), &mut prng);
    }
    network.close(near, Time(0));
    let (mut got, mut now) = (Vec::new(), Time(0));
    loop {
        match network.receive(far, 100, now, &mut prng) {
            Arrival::Bytes(bytes) => network.read(far, bytes, |bytes| got.extend_from_slice(bytes)),
            Arrival::Nothing => now = network.next_event(now).expect("more to come"),
            Arrival::End => break,
            Arrival::Broken => panic!("a rough network does not cut"),
        }
    }
    assert!(got == sent);
}

#[test]
fn a_hostile_network_cuts_and_both_ends_learn_of_it() {
    let mut prng = Prng::from_seed(5);
    let mut network = Network::new(NetworkFaults {
        cut_one_in: 1,
        ..NetworkFaults::ROUGH
    });
    let (near, far) = pair(&mut network, &mut prng);
    let sent = network.send(near, b"hello", false, Time(0), &mut prng);
    assert_eq!(sent, Sent::Taken(5));
    let later = Time(0) + Nanos::from_secs(1);
    // Data that arrived before the cut can be read, and nothing after it.
    let mut got = Vec::new();
    while let Arrival::Bytes(bytes) = network.receive(far, 100, later, &mut prng) {
        network.read(far, bytes, |bytes| got.extend_from_slice(bytes));
    }
    assert!(got.len() < 5 && b"hello".starts_with(&got), "{got:?}");
    for end in [far, near] {
        assert_eq!(network.receive(end, 100, later, &mut prng), Arrival::Broken);
    }
    let sent = network.send(far, b"hello", false, later, &mut prng);
    assert_eq!(sent, Sent::Broken);
}

/// A connection that was cut within a send must not deliver data sent after that.
#[test]
fn a_cut_leaves_no_hole_in_the_stream() {
    for seed in 0..100 {
        let mut prng = Prng::from_seed(seed);
        let mut network = Network::new(NetworkFaults {
            cut_one_in: 3,
            ..NetworkFaults::ROUGH
        });
        let (near, far) = pair(&mut network, &mut prng);
        let sent: Vec<u8> = (0..200).collect();
        for chunk in sent.chunks(10) {
            network.send(near, chunk, false, Time(0), &mut prng);
        }
        let (mut got, mut now) = (Vec::new(), Time(0));
        while let Some(next) = network.next_event(now) {
            now = next;
            if let Arrival::Bytes(bytes) = network.receive(far, 1_000, now, &mut prng) {
                network.read(far, bytes, |bytes| got.extend_from_slice(bytes));
            }
        }
        assert_eq!(got, sent[..got.len()], "seed {seed}");
    }
}
