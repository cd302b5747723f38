#pragma once

#include "lock/session/grant.hpp"
#include <rowlock/ids.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace rowlock::detail {

/// The grants that have a deadline of their own. Each is due twice: at its deadline, to be declared
/// lost, and when its holder's margin is over and the database sees the deadline as passed, to have
/// its row cleared. No clock: the times are the caller's. Thread-safe.
class grant_deadlines {
public:
    void add(const std::shared_ptr<grant>& granted);
    /// One that is over.
    void remove(const grant& ended) noexcept;
    /// No later extend() passes this time, whenever its answer comes. @param shortens also gives
    /// the grant this deadline, if it has none or a later one
    void cap(const std::shared_ptr<grant>& held, nanoseconds to, nanoseconds margin,
             nanoseconds over, bool shortens);
    /// Moves a deadline to a later time. Returns false, and changes nothing, if it has been due, or
    /// has passed.
    bool extend(grant& held, nanoseconds to, nanoseconds over, nanoseconds now) noexcept;

    /// One that is due, or else when the next will be.
    struct answer {
        std::shared_ptr<grant> due;  ///< null: none
        bool again = false;          ///< it was due before
        nanoseconds next{0};         ///< if none is due; base::alarm::never if there is none
    };
    /// Allocates nothing.
    [[nodiscard]] answer next(nanoseconds now) noexcept;

private:
    struct entry {
        std::weak_ptr<grant> of;
        bool lost = false;  ///< already declared lost; next, its row is cleared
    };
    std::mutex mutex_;
    std::map<std::pair<nanoseconds, grant_id>, entry> all_;  ///< by time and grant id
};

}  // namespace rowlock::detail
