//! Offers every stored tensor to every scheme, and settles what is left.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, text_cost};
use crate::plan::{Plan, StoredPart};
use crate::quant::scheme::{
    Context, SCHEMES, Scheme, Weight, is_known_method, lacks_index, settings_of_no_module,
};
use crate::read::catalog::quote;

use super::exclusions::ExcludedWeights;
use super::tensor_claim::{Refusals, TensorClaim, add, is_unscaled};
use super::{
    AccountEvidence, across_layers, alterations, distant_scales, exclusions, integers, leftovers,
    markers, orphans, parallel_mappings, positions, statements, unexplained,
};

const PLAN: &str = "the plan";

/// Memory that a decoder refers to, beyond its own size: tables of up to 16 values, inner decoders.
const DECODER: u64 = 1 << 10;

/// The claims on all tensors. Refused weights are added to the plan.
pub(crate) fn claims(
    cx: &Context<'_>,
    plan: &mut Plan,
    wanted: &dyn Fn(&str) -> bool,
    check: &dyn Fn() -> Result<()>,
) -> Result<Vec<TensorClaim>> {
    let mut left = OfferedTensors::default();
    let mut claims = offered(cx, plan, &mut left, wanted, check)?;
    settle(cx, plan, &mut claims, left, wanted)?;
    Ok(claims)
}

/// The tensors that schemes have recognised, and whose weights cannot be made.
#[derive(Default)]
struct OfferedTensors<'c> {
    /// Those that a scheme cannot decode.
    failed: Vec<usize>,
    /// Those whose scheme is none that the configuration describes.
    foreign: Refusals,
    excluded: ExcludedWeights<'c>,
}

/// Whether a scheme recognises a weight. Ends with the first.
pub(crate) fn recognises_any(cx: &Context<'_>) -> Result<bool> {
    for tensor in 0..cx.catalog.tensors().len() {
        let name = &cx.info(tensor).name;
        cx.budget.steps(1 + name.len() as u64 / 16, PLAN)?;
        for scheme in SCHEMES {
            let claimed = (scheme.claim)(cx, tensor);
            cx.check()?;
            if let Ok(Some(_)) = claimed {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Offers every tensor to every scheme. The first claim counts, and covers the parts of its weight.
fn offered<'c>(
    cx: &Context<'c>,
    plan: &mut Plan,
    left: &mut OfferedTensors<'c>,
    wanted: &dyn Fn(&str) -> bool,
    check: &dyn Fn() -> Result<()>,
) -> Result<Vec<TensorClaim>> {
    let tensors = cx.catalog.tensors();
    let mut slots = Vec::new();
    cx.budget.reserve(&mut slots, tensors.len(), PLAN)?;
    slots.extend(tensors.iter().map(|_| TensorClaim::Free));
    // names of siblings are made from a tensor's name, a few at a time
    let longest = tensors.iter().map(|info| info.name.len()).max();
    let _names = cx.budget.temporary(8 * longest.unwrap_or(0) as u64, PLAN)?;
    for tensor in 0..tensors.len() {
        // a part of an earlier weight
        if matches!(slots[tensor], TensorClaim::Taken) {
            continue;
        }
        // in the order of the table, which has schemes with stricter conditions first
        check()?;
        let name = &cx.info(tensor).name;
        cx.budget.steps(1 + name.len() as u64 / 16, PLAN)?;
        for scheme in SCHEMES {
            let claimed = (scheme.claim)(cx, tensor);
            cx.check()?;
            match claimed {
                Ok(None) => continue,
                Ok(Some(weight)) => {
                    // also for a weight that is refused below: it shows that the checkpoint is quantised
                    cx.caches.claimed.set(true);
                    charge_weight(&weight, cx.budget)?;
                    if let Some(why) = other_method(cx, scheme, &weight) {
                        add(cx, &mut left.foreign, tensor, why)?;
                    }
                    left.excluded.compare(cx, scheme, &weight)?;
                    slots[tensor] = match take(cx, &mut slots, &weight) {
                        Ok(()) => TensorClaim::Weight(Box::new(weight)),
                        Err(error) => {
                            if wanted(&weight.name) {
                                plan.refuse(&weight.name, error, cx.budget)?;
                            }
                            TensorClaim::Taken
                        }
                    };
                }
                // its bytes are copied: the caller has chosen so
                Err(error)
                    if cx.assume_plain && matches!(error.kind(), ErrorKind::Unexplained(_)) =>
                {
                    cx.note(format!("ignored: {}", error.kind()));
                }
                Err(error) => {
                    // codes that cannot be decoded are quantised too
                    cx.caches.claimed.set(true);
                    cx.budget.push(&mut left.failed, tensor, PLAN)?;
                    if wanted(name) {
                        plan.refuse(name, error, cx.budget)?;
                    }
                    slots[tensor] = TensorClaim::Taken;
                }
            }
            // the first scheme that claims or refuses a tensor decides about it
            break;
        }
    }
    Ok(slots)
}

/// The reason why the configuration cannot be of a weight of this scheme: it names the method of another. Codes of two methods
/// have the same names and shapes, and a converter that leaves the wrong configuration behind leaves wrong weights.
fn other_method(cx: &Context<'_>, scheme: &Scheme, weight: &Weight) -> Option<String> {
    let methods = scheme.described_by?;
    if cx.config.is_empty() || cx.config.is_of(methods) {
        return None;
    }
    let method = cx.config.method()?;
    // FP8 without scales is often no more than a cast; weights that are not quantised by the method may be by another
    // an unknown method refuses all weights
    if weight.is_unscaled() || !is_known_method(method) || cx.skipped(&weight.name) {
        return None;
    }
    let place = cx.config.place();
    let (method, scheme) = (quote(method), weight.scheme);
    Some(match weight.decoder.numbers() {
        Some(numbers) => {
            format!("{place} is of {method}, and the tensors are {numbers} ({scheme})")
        }
        None => format!("{place} is of {method}, and the tensors are of {scheme}"),
    })
}

/// Charges a weight that a scheme has claimed.
fn charge_weight(weight: &Weight, budget: &Budget) -> Result<()> {
    let own = size_of::<Weight>()
        + size_of_val(&*weight.decoder)
        + weight.parts.capacity() * size_of::<StoredPart>();
    // sizes that a shape does not hold inline
    let rank = weight.shape.len() as u64;
    let spilled = if rank > 4 { 16 * rank } else { 0 };
    let bytes = own as u64 + DECODER + text_cost(weight.name.len()) + spilled;
    budget.memory(bytes, PLAN)
}

/// Takes the parts of a weight, which may belong to no other.
fn take(cx: &Context<'_>, slots: &mut [TensorClaim], weight: &Weight) -> Result<()> {
    // the first part is the tensor itself, which is free
    for (i, part) in weight.parts.iter().enumerate().skip(1) {
        let free = match &slots[part.tensor] {
            TensorClaim::Free => true,
            // it precedes the weight, and was recognised as a weight of its own
            // of one part only: a weight with siblings has better evidence than this one and keeps its parts
            TensorClaim::Weight(other) => other.parts.len() == 1,
            TensorClaim::Refused(_) | TensorClaim::Taken => false,
        };
        if !free
            || weight.parts[..i]
                .iter()
                .any(|earlier| earlier.tensor == part.tensor)
        {
            let (name, part) = (quote(&weight.name), quote(&cx.info(part.tensor).name));
            return Err(Error::unexplained(format!(
                "weight {name}: its part {part} belongs to another weight too"
            )));
        }
    }
    weight.parts[1..]
        .iter()
        .for_each(|part| slots[part.tensor] = TensorClaim::Taken);
    Ok(())
}

/// Refuses weights by the evidence that no scheme has consumed, and warns of the rest.
fn settle(
    cx: &Context<'_>,
    plan: &mut Plan,
    slots: &mut [TensorClaim],
    left: OfferedTensors<'_>,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let OfferedTensors {
        failed,
        foreign,
        excluded,
    } = left;
    let is_claimed = |slot: &TensorClaim| !matches!(slot, TensorClaim::Free);
    let is_quantised = slots.iter().any(is_claimed) || integers::any_unclaimed(cx, slots);
    let mut evidence = AccountEvidence::of(cx, slots, is_quantised)?;
    let mut refused = foreign;
    refused.append(&mut evidence.values);
    parallel_mappings::find(cx, slots, &mut refused, &mut plan.unexplained)?;
    leftovers::find(cx, slots, &mut refused, &mut plan.unexplained)?;
    markers::find(cx, slots, &mut refused, &mut plan.unexplained)?;
    excluded.add_to(&mut plan.unexplained);
    exclusions::find_plain(cx, slots, &mut plan.unexplained)?;
    statements::find(cx, slots, &mut refused)?;
    exclusions::find_patterns(cx, &mut plan.unexplained)?;
    across_layers::find(cx, slots, &mut refused, &mut plan.unexplained)?;
    distant_scales::find(cx, slots, &mut refused, &mut plan.unexplained)?;
    alterations::find(cx, slots, is_quantised, &mut plan.unexplained)?;
    if !cx.is_part()
        && let Some((key, module)) = settings_of_no_module(cx)?
    {
        let (module, place) = (quote(module), cx.config.place());
        plan.unexplained.push(format!(
            "{module} in {key} of {place} names no module that is here; its settings are of none"
        ));
    }
    if let Some(order) = &cx.sidecars.act_order {
        let mut weights = slots.iter().filter_map(|slot| match slot {
            TensorClaim::Weight(weight) if lacks_index(cx, weight) => Some(weight),
            _ => None,
        });
        if let Some(weight) = weights.next() {
            plan.unexplained.push(format!(
                "{}: it has no `weight_g_idx`, which {order} makes; its groups are read as consecutive columns",
                quote(&weight.name)
            ));
        }
    }
    let ranks = cx.config.model().size(&["mapping.world_size"]);
    if let Some(ranks) = ranks.filter(|ranks| *ranks > 1 && cx.catalog.files().len() == 1) {
        plan.unexplained.push(format!(
            "`mapping.world_size`: {ranks} of config.json: a file of one rank has a part of every tensor that tensor parallelism \
             divides"
        ));
    }
    let mut decided = 0;
    if let Some(why) = &evidence.deciding {
        let claimed = slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| is_decided(slot));
        for (tensor, _) in claimed {
            decided += 1;
            let why = format!("{why} is not known, and decides how its bytes are read");
            add(cx, &mut refused, tensor, why)?;
        }
    }
    if let Some(map) = &evidence.map {
        let unscaled = slots.iter().enumerate();
        for (tensor, _) in unscaled.filter(|(_, slot)| is_unscaled(slot)) {
            let why = format!("its scale may be in {}, which is not read", quote(map));
            add(cx, &mut refused, tensor, why)?;
        }
    }
    plan.unexplained.extend(cx.take_assumptions());
    let warnings = &mut plan.unexplained;
    integers::find(cx, slots, &failed, &evidence, &mut refused, warnings)?;
    orphans::find(cx, slots, &failed, &mut refused, warnings)?;
    orphans::odd_codes(cx, slots, &mut refused)?;
    positions::find(cx, slots, &mut refused)?;
    // lists of tensors stand beside data too, so that they are no evidence about integers
    if slots
        .iter()
        .any(|slot| matches!(slot, TensorClaim::Weight(_)))
    {
        for name in &cx.sidecars.factors {
            let name = quote(name);
            plan.unexplained.push(format!(
                "the file {name} beside the checkpoint is not known, and is ignored"
            ));
        }
    }
    // each refusal says what decides
    let deciding = evidence.deciding.iter().filter(|_| decided == 0);
    for remark in deciding.chain(&evidence.remarks) {
        cx.budget.text(remark.len(), PLAN)?;
        plan.unexplained
            .push(format!("{remark} is not known, and is ignored"));
    }
    refuse_all(cx, plan, slots, refused, wanted)
}

/// Refuses weights, once each, or notes what is ignored where the caller assumes that it means nothing.
fn refuse_all(
    cx: &Context<'_>,
    plan: &mut Plan,
    slots: &mut [TensorClaim],
    refused: Refusals,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<()> {
    for (tensor, why) in refused {
        if cx.assume_plain {
            plan.unexplained
                .push(format!("ignored: {}: {why}", quote(&cx.info(tensor).name)));
            continue;
        }
        let (name, refused) = match std::mem::replace(&mut slots[tensor], TensorClaim::Taken) {
            TensorClaim::Taken => continue,
            TensorClaim::Refused(weight) => {
                slots[tensor] = TensorClaim::Refused(weight);
                continue;
            }
            TensorClaim::Weight(weight) => (weight.name.clone(), TensorClaim::Refused(weight)),
            TensorClaim::Free => (cx.info(tensor).name.clone(), TensorClaim::Taken),
        };
        slots[tensor] = refused;
        // the checkpoint is quantised in a way that is not known
        cx.caches.claimed.set(true);
        if wanted(&name) {
            plan.refuse(&name, unexplained(cx, tensor, &why), cx.budget)?;
        }
    }
    // the same words of many weights are one warning
    plan.unexplained.dedup();
    const SHOWN: usize = 16;
    if plan.unexplained.len() > SHOWN {
        let more = plan.unexplained.len() - SHOWN;
        plan.unexplained.truncate(SHOWN);
        plan.unexplained.push(format!(
            "{more} further signs of quantisation, which are not listed"
        ));
    }
    for text in &plan.unexplained {
        cx.note(text.clone());
    }
    Ok(())
}

/// Whether the configuration may decide how the bytes of a weight are read: the types of GGUF say it themselves.
fn is_decided(slot: &TensorClaim) -> bool {
    matches!(slot, TensorClaim::Weight(weight) if weight.scheme != "ggml")
}
