//! The fuzz targets for a moment each, on bytes from fixed seeds and on the kept corpus.

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    use wire::tcp::Role;

    use crate::fuzz_entry;

    /// Runs `target` on what is kept for `name`, and on `cases` random inputs, always the same
    /// ones.
    fn runs(name: &str, cases: u32, longest: usize, target: impl Fn(&[u8])) {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        for file in kept.join(name).read_dir().expect("a corpus") {
            let file = file.expect("a file of the corpus").path();
            target(&std::fs::read(file).expect("a file of the corpus"));
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
