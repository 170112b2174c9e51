//! Runs each fuzz target on its stored corpus, then on random bytes from a fixed seed.

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    use wire::tcp::Role;

    use crate::{corpus, fuzz_entry};

    /// Runs `target` on the stored inputs of `name`, then on `cases` random inputs from a fixed
    /// seed.
    fn runs(name: &str, cases: u32, longest: usize, target: impl Fn(&[u8])) {
        let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus.tar.gz");
        for (_, bytes) in corpus::inputs(archive, name) {
            target(&bytes);
        }
        let config = Config {
            cases,
            failure_persistence: None,
            ..Config::default()
        };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(config, rng);
        runner
            .run(&prop::collection::vec(any::<u8>(), 0..longest), |input| {
                target(&input);
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn framer_of_a_controller() {
        runs("framer_controller", 2000, 400, |input| {
            fuzz_entry::framer(Role::Controller, input);
        });
    }

    #[test]
    fn framer_of_a_host() {
        runs("framer_host", 2000, 400, |input| {
            fuzz_entry::framer(Role::Host, input);
        });
    }

    #[test]
    fn commands_and_completions() {
        runs("command", 4000, 128, fuzz_entry::command);
    }

    #[test]
    fn data_structures() {
        runs("structure", 200, 4200, fuzz_entry::structure);
    }
}
