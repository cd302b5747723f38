#include "lock/client/engine.hpp"
#include "metrics/text.hpp"
#include <rowlock/client.hpp>
#include <rowlock/metrics.hpp>

#include <algorithm>

namespace rowlock::metrics {
namespace {

void write_losses(text& out, const measurements& from) {
    out.begin(client_lost);
    for (const auto* const each : from.classes()) {
        // From the first: an alert on an increase sees the first loss, too.
        for (std::size_t i = 1; i < class_measurements::reasons; ++i) {
            const auto why = static_cast<loss_reason>(i);
            out.sample({{"reason", to_string(why)}, {"class", each->name()}}, each->losses(why));
        }
    }
}

void write_acquires(text& out, const measurements& from) {
    out.begin(client_acquire_seconds);
    for (const auto* const each : from.classes()) {
        for (std::size_t mode = 0; mode < mode_names.size(); ++mode) {
            for (std::size_t how = 0; how < outcome_names.size(); ++how) {
                const auto seen = each->acquires(static_cast<acquire_mode>(mode),
                                                 static_cast<acquire_outcome>(how));
                if (seen.count == 0) continue;  // most modes are never used
                out.sample({{"mode", mode_names.at(mode)},
                            {"outcome", outcome_names.at(how)},
                            {"class", each->name()}},
                           seen);
            }
        }
    }
}

void write_holds(text& out, const measurements& from) {
    out.begin(client_hold_seconds);
    for (const auto* const each : from.classes()) {
        const auto seen = each->holds();
        if (seen.count > 0) out.sample({{"class", each->name()}}, seen);
    }
}

void write_session(text& out, const detail::session& ours, nanoseconds now) {
    out.begin(client_heartbeat_age);
    out.sample({}, std::max(now - ours.last_beat(), nanoseconds{0}));
    out.begin(client_trust_remaining);
    out.sample({}, std::max(ours.trust()->until() - now, nanoseconds{0}));
}

}  // namespace

std::string prometheus(const client& locks) {
    auto& engine = *locks.engine_;
    const auto& context = engine.context();
    const auto stats = engine.stats();
    text out;
    for (const auto& each : client_numbers) {
        out.begin(each.is);
        out.sample({}, stats.*each.member);
    }
    write_losses(out, context.measured);
    write_acquires(out, context.measured);
    write_holds(out, context.measured);
    if (const auto ours = engine.sessions().current()) write_session(out, *ours, context.now());
    return out.str();
}

}  // namespace rowlock::metrics
