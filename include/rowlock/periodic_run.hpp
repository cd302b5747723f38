#pragma once

#include <rowlock/client.hpp>

#include <chrono>
#include <concepts>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

namespace rowlock {

/// @addtogroup periodic
/// Work that is to be done once a period, or not too often, by whichever of many schedulers comes
/// first:
///
///     rowlock::run_once(locks, "nightly-report", {.period = "2026-11-26"},
///                       [](const rowlock::lease& held) { … });
///
/// A lease keeps runs from overlapping. A record beside it keeps them from being repeated: it has
/// the last period that was finished and the time before which no run begins, by the database's
/// clock alone, and it survives crashes. Schedulers whose clocks differ may ask for the same period
/// at different times, or for an earlier one later: one run finishes.
///
/// @{

/// Options of one run.
struct periodic_options {
    /// The period that is to be done: it is done once. Periods are compared byte by byte and must
    /// sort as they follow each other: "2026-11-26", "2026-W48", "2026-11-26T14". A period that is
    /// not greater than the last one finished counts as done. Empty: there are no periods. Up to
    /// 255 bytes of UTF-8.
    std::string period = {};
    /// No other run begins so long after this one began, even if it ends or dies earlier: for jobs
    /// that are shorter than the clocks of their schedulers differ. 0 to 366 days.
    std::chrono::milliseconds at_least{0};
    /// No run begins if one finished so recently.
    std::optional<std::chrono::milliseconds> skip_if_within = {};
    /// After a run that did not finish no other begins for so long, from when a client finds that
    /// out: for what such a run has left behind. 0 to 366 days.
    std::chrono::milliseconds lock_delay{0};
    /// How long to wait while another run goes on, or for the end of a rest. 0: not at all;
    /// nullopt: no limit.
    std::optional<std::chrono::milliseconds> wait = std::chrono::milliseconds{0};
    /// Of the lease; max_duration is the most that a run may take.
    acquire_options lease = {};
};

/// How an attempt to begin a run ended.
enum class periodic_outcome : unsigned char {
    begun,    ///< the run may go on
    busy,     ///< another run goes on
    resting,  ///< at_least or lock_delay of an earlier run is not over
    recent,   ///< one finished within skip_if_within
    done,     ///< the period was finished before
};
/// The name of the enumerator.
[[nodiscard]] const char* to_string(periodic_outcome outcome) noexcept;

/// What is recorded of the runs of one name, for people.
struct run_info {
    fencing_token token{};                             ///< of the latest run
    bool finished = false;                             ///< the latest run: not (yet) if false
    std::optional<std::string> period{};               ///< the greatest that was finished
    std::chrono::milliseconds began{0};                ///< since the latest run began
    std::optional<std::chrono::milliseconds> ended{};  ///< since a run finished last
    std::chrono::milliseconds rest{0};                 ///< until the next run may begin
};

struct periodic_attempt;

/// A run that has begun. Unless finish() is called it counts as failed: the period is not done, and
/// another run may begin after its rest. Threads as for a lease.
class [[nodiscard]] periodic_run {
public:
    /// Begins a run, if nothing speaks against it. Seven round trips or more.
    /// @throws error as client::acquire(); errc::invalid_options
    [[nodiscard]] static periodic_attempt begin(client& locks, const lock_name& name,
                                                const periodic_options& options = {},
                                                const std::stop_token& stop = {});

    /// Empty if no run of that name ever began. One round trip; needs no session.
    [[nodiscard]] static std::optional<run_info> inspect(client& locks, const lock_name& name);

    /// Keeps other runs away; may be lost, as any lease.
    [[nodiscard]] const rowlock::lease& lease() const noexcept { return lease_; }

    /// Records that the run has finished, and releases the lease (a failure of that is reported as
    /// an event). Two round trips.
    /// @throws error errc::lock_lost if the lease was lost: then nothing is recorded, and the run
    /// counts as failed; errc::not_owner if the run is over. After another error the run counts as
    /// failed, or, after errc::outcome_unknown, perhaps as finished
    void finish();
    /// Ends the run without that record: it failed. One round trip.
    /// @throws error as lease::release()
    void abandon() { lease_.release(); }

private:
    friend struct periodic_attempt;
    periodic_run(rowlock::lease held, std::string period)
        : lease_{std::move(held)}, period_{std::move(period)} {}

    rowlock::lease lease_;
    std::string period_;
};

/// What periodic_run::begin() returns.
struct periodic_attempt {
    periodic_outcome outcome = periodic_outcome::busy;  ///< begun, or what kept the run from it
    std::optional<periodic_run> run{};                  ///< if begun
    std::chrono::milliseconds rest{0};                  ///< what is left of it, if resting
};

/// Begins a run, calls `work(lease)`, and records that it finished. If the work throws, the run
/// counts as failed. Returns what kept it from beginning, or `begun`.
template <std::invocable<const lease&> Work>
periodic_outcome run_once(client& locks, const lock_name& name, const periodic_options& options,
                          Work&& work) {
    auto attempt = periodic_run::begin(locks, name, options);
    if (!attempt.run) return attempt.outcome;
    std::forward<Work>(work)(attempt.run->lease());
    attempt.run->finish();
    return attempt.outcome;
}

/// @}

}  // namespace rowlock
