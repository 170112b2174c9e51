//! Runs each fuzz target on its kept corpus, then on random bytes from fixed seeds.

#[cfg(test)]
#[path = "../../corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    use crate::corpus;
    use base::Prng;
    use fuzz_entries::{
        chap, configuration, descriptor_chain, device_model, host_session, http, nbd,
        target_session, tls,
    };

    /// Names the input, if the test fails on it.
    struct Named(String);

    impl Drop for Named {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("this failed on {}", self.0);
            }
        }
    }

    /// Runs `entry` on the kept inputs of `name`, then on `cases` random inputs from fixed seeds.
    fn run(name: &str, cases: u64, longest: u64, entry: impl Fn(&[u8])) {
        let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus.tar.gz");
        for (input, bytes) in corpus::inputs(archive, name) {
            let _named = Named(input);
            entry(&bytes);
        }
        for seed in 0..cases {
            let mut prng = Prng::from_seed(seed);
            let length = usize::try_from(prng.below(longest)).expect("a short input");
            let mut input = vec![0; length];
            prng.fill(&mut input);
            let _named = Named(format!("seed {seed}"));
            entry(&input);
        }
    }

    #[test]
    fn sessions_of_a_target() {
        run("target_session", 300, 1_000, target_session);
    }

    #[test]
    fn sessions_of_a_host() {
        run("host_session", 100, 400, host_session);
    }

    #[test]
    fn configurations() {
        run("configuration", 500, 200, configuration);
    }

    #[test]
    fn device_models() {
        run("device_model", 500, 200, device_model);
    }

    #[test]
    fn descriptor_chains() {
        run("descriptor_chain", 2_000, 1_500, descriptor_chain);
    }

    #[test]
    fn nbd_clients() {
        run("nbd", 400, 400, nbd);
    }

    #[test]
    fn handshakes_and_records_of_tls() {
        run("tls", 2_000, 300, tls);
    }

    #[test]
    fn messages_of_chap() {
        run("chap", 2_000, 300, chap);
    }

    #[test]
    fn requests_to_the_interface() {
        run("http", 200, 200, http);
    }
}
