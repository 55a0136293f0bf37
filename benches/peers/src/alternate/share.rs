//! How often each contender runs when there is not time for all rounds of all.

use std::time::Duration;

/// Rounds that are made whatever they take.
const AT_LEAST: usize = 3;
/// Who takes longer in those has no more.
const PATIENCE: Duration = Duration::from_secs(20);

/// Rounds of each contender, given what one takes with it. The quickest come first: what one slow contender needs for a
/// round is all rounds of many others.
pub fn rounds(costs: &[Duration], wanted: usize, left: Duration) -> Vec<usize> {
    let least = wanted.min(AT_LEAST);
    let mut left = left.saturating_sub(costs.iter().sum::<Duration>() * least as u32);
    let mut rounds = vec![least; costs.len()];
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by_key(|&i| costs[i]);
    for i in order
        .into_iter()
        .filter(|&i| costs[i] * (least as u32) < PATIENCE)
    {
        let affordable = left.as_nanos() / costs[i].as_nanos().max(1);
        let more = (wanted - least).min(usize::try_from(affordable).unwrap_or(usize::MAX));
        left -= costs[i] * more as u32;
        rounds[i] += more;
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_give_way_to_the_quick() {
        let costs = [5.0, 1.0, 50.0, 0.5].map(Duration::from_secs_f64);
        let of = |left: f64| rounds(&costs, 7, Duration::from_secs_f64(left));
        assert_eq!(
            of(1000.0),
            [7, 7, 3, 7],
            "nobody waits for who takes a minute"
        );
        assert_eq!(of(3.0 * 56.5 + 4.0 * 1.5 + 11.0), [5, 7, 3, 7]);
        assert_eq!(of(3.0 * 56.5 + 3.5), [3, 4, 3, 7]);
        assert_eq!(of(0.0), [3; 4]);
        assert_eq!(rounds(&costs, 2, Duration::ZERO), [2; 4]);
    }
}
