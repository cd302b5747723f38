#include "members.hpp"

#include "scheduler.hpp"

#include <algorithm>

namespace rowlock::sim {

members::members(i64 count) {
    for (i64 i = 0; i < count; ++i) {
        all_.push_back(std::make_unique<database>("server " + std::to_string(++servers_)));
    }
}

std::vector<sql::connection_source> members::sources() {
    std::vector<sql::connection_source> sources;
    for (const auto& each : all_) sources.push_back(each->source());
    return sources;
}

void members::at_some(database& main, u64 which, const std::function<void(weather&)>& call) {
    call(main.sky);
    for (std::size_t i = 0; i < all_.size(); ++i) {
        if ((which >> i & 1) != 0) call(all_[i]->sky);
    }
}

void members::prepare(const fault& what) {
    if (all_.empty() || what.kind != fault_kind::member_back) return;
    world->at(std::max<i64>(world->now(), world->now() + what.when - what.lasts),
              [this, which = position(what)] { save(which); });
}

void members::save(std::size_t which) {
    if (!all_[which]->save()) world->after(1 * ms, [this, which] { save(which); });
}

void members::happen(const fault& what, const std::function<void(std::size_t)>& readmit) {
    if (all_.empty()) return;
    const auto which = position(what);
    auto& member = *all_[which];
    const std::string name = "member " + std::to_string(which + 1);
    switch (what.kind) {
        case fault_kind::member_down:
            world->log("FAULT " + name + " answers nobody");
            member.sky.down = true;
            world->after(what.lasts, [&sky = member.sky] { sky.down = false; });
            return;
        case fault_kind::member_crash:
            world->log("FAULT " + name + " ends all connections");
            return member.crash();
        case fault_kind::member_back:
            if (one_is_away_ || !votes(which)) return;
            one_is_away_ = true;
            world->log("FAULT " + name + " is replaced by a server that knows what it knew " +
                       std::to_string(what.lasts / us) + " us before");
            member.set_back("server " + std::to_string(++servers_));
            return readmit(which);
        default:
            return;
    }
}

bool members::votes(std::size_t position) {
    const auto& of = *all_[position];
    const auto rows = all_[position]->ask("select ready_for from rowlock_member");
    return !rows.empty() && rows.text(0, 0) == of.identity;
}

void members::heal() {
    for (const auto& each : all_) each->sky = {};
}

}  // namespace rowlock::sim
