//! How long a server wants no further request: `Retry-After`, or the reset of its `RateLimit`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::{self, HeaderMap};

/// The time that the header of an answer names, if it does.
pub(crate) fn wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let date = |value: &str| {
        let at = http_date(value)?;
        // by the clock of the server, if it states it: this machine's may differ by more than the wait
        let sent = text(header::DATE.as_str()).and_then(http_date);
        let here = || now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Some(at.saturating_sub(sent.unwrap_or_else(here)))
    };
    let retry_after = text(header::RETRY_AFTER.as_str());
    let wait = retry_after
        .and_then(|value| seconds(value).or_else(|| date(value)))
        .or_else(|| text("ratelimit").and_then(reset))
        .or_else(|| text("ratelimit-reset").and_then(seconds))?;
    Some(Duration::from_secs(wait))
}

fn seconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The seconds after which a quota is filled again: the `t=` of `"api";r=0;t=55`, or the `reset=` of the header's first drafts.
fn reset(limit: &str) -> Option<u64> {
    limit.split([';', ',']).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        matches!(name.trim(), "t" | "reset").then(|| seconds(value))?
    })
}

/// Seconds since 1970 of a date in one of the three forms that RFC 9110 has: `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday,
/// 06-Nov-94 08:49:37 GMT` and `Sun Nov  6 08:49:37 1994`.
fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    // no date is longer
    let words: Vec<&str> = text
        .get(..text.len().min(64))?
        .split([' ', ',', '-'])
        .filter(|word| !word.is_empty())
        .collect();
    let (day, month, year, time) = match *words {
        [_, day, month, year, time, "GMT"] => (day, month, year, time),
        [_, month, day, time, year] => (day, month, year, time),
        _ => return None,
    };
    let month = (1..).zip(MONTHS).find(|(_, name)| *name == month)?.0;
    let (day, year) = (seconds(day)?, seconds(year)?);
    let year = match year {
        0..70 => 2000 + year,
        70..100 => 1900 + year,
        _ => year,
    };
    let mut parts = time.split(':').map(seconds);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let is_valid = parts.next().is_none()
        && (1970..10_000).contains(&year)
        && (1..=31).contains(&day)
        && (hour < 24 && minute < 60 && second <= 60);
    is_valid.then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days from 1970 to a date of the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // years that begin in March, so that the leap day is the last one
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    // 719 468 days lie between March of the year 0 and 1970
    (365 * year + leap_days + (153 * month + 2) / 5 + day - 1) - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waited(pairs: &[(&'static str, &'static str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        let now = UNIX_EPOCH + Duration::from_secs(1_792_567_680);
        wait(&headers, now).map(|wait| wait.as_secs())
    }

    #[test]
    fn dates() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(http_date(text), Some(784_111_777), "{text}");
        }
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(
            http_date("Tue, 29 Feb 2028 23:59:60 GMT"),
            Some(1_835_481_600)
        );
        for wrong in [
            "",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1960 08:49:37 GMT",
            "Sun, 06 Nov 99999 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37:00 GMT",
            "Sun, 06 XXX 1994 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(http_date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_wait_is_seconds_a_date_or_a_reset() {
        assert_eq!(waited(&[("retry-after", "7")]), Some(7));
        assert_eq!(waited(&[("ratelimit", "\"api\";r=0;t=55")]), Some(55));
        assert_eq!(
            waited(&[("ratelimit", "limit=9, remaining=0, reset=50")]),
            Some(50)
        );
        assert_eq!(waited(&[("ratelimit-reset", "12")]), Some(12));
        let both = [("retry-after", "2"), ("ratelimit", "\"api\";r=0;t=55")];
        assert_eq!(waited(&both), Some(2));
        // by the server's clock, or else by this machine's
        let date = ("retry-after", "Wed, 21 Oct 2026 07:28:10 GMT");
        assert_eq!(
            waited(&[date, ("date", "Wed, 21 Oct 2026 07:28:00 GMT")]),
            Some(10)
        );
        assert_eq!(waited(&[date]), Some(10));
        let past = ("retry-after", "Wed, 21 Oct 2020 07:28:10 GMT");
        assert_eq!(waited(&[past]), Some(0));
        for wrong in ["-1", "+1", "1.5", "soon", "99999999999999999999"] {
            assert_eq!(waited(&[("retry-after", wrong)]), None, "{wrong}");
        }
        assert_eq!(waited(&[("ratelimit", "t=-1")]), None);
        assert_eq!(waited(&[]), None);
    }
}
