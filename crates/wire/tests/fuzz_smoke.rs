//! The fuzz targets for a moment each, on bytes from fixed seeds, with the stable compiler.

mod fuzz_entry;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    use wire::tcp::Role;

    use crate::fuzz_entry;

    /// Runs `target` on `cases` random inputs, always the same ones.
    fn random_runs(cases: u32, longest: usize, target: impl Fn(&[u8])) {
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
        random_runs(2000, 400, |input| {
            fuzz_entry::framer(Role::Controller, input)
        });
    }

    #[test]
    fn framer_of_a_host() {
        random_runs(2000, 400, |input| fuzz_entry::framer(Role::Host, input));
    }

    #[test]
    fn commands_and_completions() {
        random_runs(4000, 128, fuzz_entry::command);
    }

    #[test]
    fn data_structures() {
        random_runs(200, 4200, fuzz_entry::structure);
    }
}
