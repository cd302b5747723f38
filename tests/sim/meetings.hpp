#pragma once

#include "oracle.hpp"

#include <map>
#include <optional>
#include <set>

namespace rowlock::sim {

/// What is promised of latches and double barriers, seen in true time: a latch opens when all have
/// arrived, and never before; nobody enters a barrier before all do, or leaves it before all have;
/// each generation has one answer.
///
/// A call counts from the moment at which it begins, as it may have taken effect since; one that
/// failed, or whose process was killed, may have taken effect or not.
class meetings {
public:
    meetings(oracle& judge, i64 parties, bool losses_count)
        : judge_{judge}, parties_{parties}, losses_count_{losses_count} {}

    /// @name A latch
    /// @{
    /// The latest generation that somebody has begun.
    [[nodiscard]] i64 latest() const noexcept { return latest_; }
    /// @param before the latest one when the call began
    void begun(i64 generation, i64 before);
    void joins(i64 generation) { latches_[generation].began += losses_count_ ? 1 : 0; }
    void arrives(i64 generation, bool is_party) {
        latches_[generation].began += is_party && losses_count_ ? 0 : 1;
    }
    void arrived(i64 generation) { ++latches_[generation].done; }
    /// How many have arrived for sure; for answered().
    [[nodiscard]] i64 arrived_by_now(i64 generation) { return latches_[generation].done; }
    /// What a wait has returned, before which so many had arrived.
    void waited(i64 generation, bool is_open, i64 arrived_before);
    void latch_broke(i64 generation) { latches_[generation].answers(*this, "broken", generation); }
    /// @}

    /// @name A double barrier
    /// @{
    using call_id = u64;
    [[nodiscard]] call_id enters(const node& process);
    void entered(call_id which, i64 generation);
    void did_not_enter(call_id which) { entering_.erase(which); }
    void may_have_entered(call_id which);
    void departs(i64 generation) { ++barriers_[generation].began; }
    void left(i64 generation);
    void barrier_broke(i64 generation) {
        barriers_[generation].answers(*this, "broken", generation);
    }
    /// @}

    void killed(const node& process);
    /// Nobody is inside a call any more.
    void end();

private:
    struct round {
        i64 began = 0;  ///< arrivals at a latch, or departures from a barrier
        i64 done = 0;   ///< arrivals for sure; or those that have entered
        std::optional<std::string> answer{};
        void answers(meetings& of, const std::string& what, i64 generation);
    };
    void fail(const std::string& what, i64 generation);
    [[nodiscard]] bool all(i64 count) const { return count + unsure_ >= parties_; }

    oracle& judge_;
    const i64 parties_;
    const bool losses_count_;
    std::set<i64> begun_;
    i64 latest_ = 0;
    i64 unsure_ = 0;  ///< calls to enter of which nobody knows
    u64 last_call_ = 0;
    std::map<i64, round> latches_, barriers_;
    std::map<call_id, const node*> entering_;
};

}  // namespace rowlock::sim
