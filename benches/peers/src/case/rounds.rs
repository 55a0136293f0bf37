//! Divides a section's time among its variants when it does not suffice for all rounds of all of them.

use std::time::Duration;

/// Rounds that every variant gets, whatever they take: a median needs three.
const MIN_ROUNDS: usize = 3;
/// A variant whose first `MIN_ROUNDS` take longer than this gets no further rounds.
const SLOW: Duration = Duration::from_secs(20);

/// The number of rounds for each variant, given the duration of one round of each. The fastest variants are served first:
/// one round of the slowest costs as much as all rounds of many others.
pub fn allot(costs: &[Duration], wanted: usize, time_left: Duration) -> Vec<usize> {
    let least = wanted.min(MIN_ROUNDS);
    let mut time_left = time_left.saturating_sub(costs.iter().sum::<Duration>() * least as u32);
    let mut rounds = vec![least; costs.len()];
    let mut by_cost: Vec<usize> = (0..costs.len()).collect();
    by_cost.sort_by_key(|&i| costs[i]);
    for i in by_cost
        .into_iter()
        .filter(|&i| costs[i] * (least as u32) < SLOW)
    {
        let affordable = time_left.as_nanos() / costs[i].as_nanos().max(1);
        let more = (wanted - least).min(usize::try_from(affordable).unwrap_or(usize::MAX));
        time_left -= costs[i] * more as u32;
        rounds[i] += more;
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_variants_get_their_rounds_first() {
        let costs = [5.0, 1.0, 50.0, 0.5].map(Duration::from_secs_f64);
        let allotted = |left: f64| allot(&costs, 7, Duration::from_secs_f64(left));
        assert_eq!(
            allotted(1000.0),
            [7, 7, 3, 7],
            "a variant that takes a minute gets the least"
        );
        assert_eq!(allotted(3.0 * 56.5 + 4.0 * 1.5 + 11.0), [5, 7, 3, 7]);
        assert_eq!(allotted(3.0 * 56.5 + 3.5), [3, 4, 3, 7]);
        assert_eq!(allotted(0.0), [3; 4]);
        assert_eq!(allot(&costs, 2, Duration::ZERO), [2; 4]);
    }
}
