#pragma once

#include "database.hpp"
#include "meetings.hpp"
#include "oracle.hpp"
#include "plan.hpp"
#include "scheduler.hpp"
#include "simulation.hpp"
#include <rowlock/client.hpp>
#include <rowlock/lease_offer.hpp>
#include <rowlock/quorum.hpp>
#include <rowlock/shared_mutex.hpp>

#include <memory>
#include <string>
#include <vector>

namespace rowlock::sim {

constexpr auto* semaphore_name = "permits";
constexpr auto* election_name = "office";
constexpr auto* run_name = "run";
constexpr auto* latch_name = "latch";
constexpr auto* barrier_name = "barrier";
/// The quorum lock beside the lease of that name.
inline std::string quorum_name(const std::string& of) {
    return "quorum-" + of;
}
/// The shared_mutex for the lease of that name: another lock, or the same.
inline std::string mode_name(const plan& in, const std::string& of) {
    return in.one_name ? of : "modes-" + of;
}

/// What the threads of a simulation share.
class scene {
public:
    scene(const plan& chosen, statistics& sum) : plan_{chosen}, sum_{sum} {}
    scene(const scene&) = delete;
    scene& operator=(const scene&) = delete;
    virtual ~scene() = default;

    [[nodiscard]] virtual sim::scheduler& scheduler() = 0;
    [[nodiscard]] virtual sim::oracle& oracle() = 0;
    [[nodiscard]] virtual sim::meetings& meetings() = 0;
    [[nodiscard]] virtual sim::database& database() = 0;
    [[nodiscard]] virtual bool healed() const = 0;
    /// Whether this node was never stopped or stalled.
    [[nodiscard]] virtual bool steady(const node& process) const = 0;
    [[nodiscard]] const plan& chosen() const noexcept { return plan_; }
    [[nodiscard]] statistics& sum() noexcept { return sum_; }
    /// After that the database's times say nothing about true times.
    [[nodiscard]] bool clock_was_set() const noexcept { return clock_was_set_; }
    /// Leases that wait for one that adopts them: the way between processes is the program's.
    struct offered {
        lease_offer what{};
        i64 duration = 0;  ///< of the hold, of which a sixth is the margin
    };
    [[nodiscard]] std::vector<offered>& offers() noexcept { return offers_; }

protected:
    bool clock_was_set_ = false;

private:
    const plan& plan_;
    statistics& sum_;
    std::vector<offered> offers_{};
};

/// One for each name, in each client: its threads share their holds.
using shared_mutexes = std::vector<std::unique_ptr<shared_mutex>>;

/// What the threads of a simulated process share.
struct clients {
    client& locks;
    shared_mutexes& modes;
    quorum_client* quorum = nullptr;  ///< if there is one
};

/// A thread of a simulated process: does what is planned for it, tells the oracle what it
/// believes, and ends soon after everything has healed.
void work(scene& in, node& home, const clients& with, const process& of, const user& planned);

/// The main thread of a process that starts in the place of one that died: takes over what that
/// one held, works under it, and gives it back.
void take_over(scene& in, node& home, const clients& with, const process& of);

}  // namespace rowlock::sim
