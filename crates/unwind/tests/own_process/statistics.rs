//! The cost of walks, printed if the environment requests it.

use super::*;

#[test]
fn counts_are_printed_at_the_end() {
    const INNER: &str = "UNSPOOL_TEST_STATISTICS";
    if std::env::var_os(INNER).is_some() {
        let mut watcher = Watcher::new();
        for _ in 0..10 {
            watcher.ask_memo();
            watcher.ask_afresh();
        }
        let frames = watcher.found.len();
        return fs::write(std::env::var_os(INNER).unwrap(), frames.to_string()).unwrap();
    }
    let path = directory().join("frames");
    let run = |is_wanted| {
        let output = this_test(&[])
            .env(INNER, &path)
            .env("UNSPOOL_RULES", "512K")
            .env("UNSPOOL_STATS", is_wanted)
            .finish()
            .ended_with(0);
        output.err
    };
    assert_eq!(run("0"), "");
    let text = run("1");
    let line = text.strip_prefix("unspool: ").unwrap();
    let count = |name: &str| -> u64 {
        let mut counts = line.trim_end().split(", ");
        let count = counts.find_map(|count| count.strip_suffix(name)).unwrap();
        count.trim_end().parse().unwrap()
    };
    let frames: u64 = fs::read_to_string(&path).unwrap().parse().unwrap();
    // One more for each prepared thread.
    assert_eq!(count("walks"), 21);
    assert!(count("frames") >= 20 * frames, "{line}");
    let remembered = count("of them remembered");
    assert!(remembered > 0 && remembered <= 10 * frames, "{line}");
    // Every return address is new once, and none is afterwards. But if two pages want the same
    // block of rules, by chance, one must wait. Half of the walks search for all.
    let learned = count("of them learned");
    assert!((frames / 2..5 * frames).contains(&learned), "{line}");
    assert!(count("rules searched") >= learned, "{line}");
    assert_eq!(count("of them guessed"), 0);
    assert!(count("nanoseconds") > 0);
    assert_eq!(count("KiB for rules"), 512);
}
