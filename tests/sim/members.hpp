#pragma once

#include "database.hpp"
#include "plan.hpp"

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace rowlock::sim {

/// The databases of a simulated quorum, and what happens to them: each is a server of its own.
class members {
public:
    explicit members(i64 count);

    [[nodiscard]] bool any() const noexcept { return !all_.empty(); }
    [[nodiscard]] std::vector<sql::connection_source> sources();
    [[nodiscard]] const std::vector<std::unique_ptr<database>>& all() const noexcept {
        return all_;
    }

    /// Calls this with the weather at the database `main`, and at those members whose bit is set.
    void at_some(database& main, u64 which, const std::function<void(weather&)>& call);
    /// @param readmit is called when another server has taken the place of that member: it is to
    /// vote again, sooner or later, and to say so by readmitted(). Until then no other is replaced:
    /// of what a majority has forgotten nothing is promised
    void happen(const fault& what, const std::function<void(std::size_t)>& readmit);
    /// Before the faults happen: what is set back later is saved in time.
    void prepare(const fault& what);
    /// Whether that member's server votes, as its tables say.
    [[nodiscard]] bool votes(std::size_t position);
    void readmitted() { one_is_away_ = false; }
    void heal();

private:
    [[nodiscard]] std::size_t position(const fault& of) const { return of.victim % all_.size(); }
    void save(std::size_t which);

    std::vector<std::unique_ptr<database>> all_;
    bool one_is_away_ = false;
    int servers_ = 0;
};

}  // namespace rowlock::sim
