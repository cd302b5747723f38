#pragma once

#include "base/clock.hpp"
#include "lock/session/grant.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/options.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rowlock::detail {

/// When the lease of one name is worth keeping, and how many tokens to reserve for it. Not
/// thread-safe.
class retention_policy {
public:
    /// A thread releases the lease, and no other client waits for it. Returns whether to keep it:
    /// no other client has had the lease since this client's previous release, `needed()` times in
    /// a row. @param token of the lease's row
    bool released(std::int64_t token, nanoseconds now) noexcept;
    /// The lease may not be kept this time.
    void interrupted() noexcept { in_a_row_ = 0; }
    /// Another client waits, or has waited for this grant. For as long as clients remember that
    /// there were waiters nothing is kept: they enqueue without a look at the lease, and would
    /// recall nothing.
    void contended(nanoseconds now) noexcept;
    /// What was kept is over. A retention that saved less than it cost makes the next one rarer.
    /// @param recalled by another client, or never taken again
    void ended(std::int64_t local_grants, bool recalled, std::int64_t token) noexcept;
    /// How many tokens to reserve, after so many were used of the last block.
    std::int64_t next_block(std::int64_t used) noexcept;

    [[nodiscard]] int needed() const noexcept { return needed_; }

    /// Longer than contended_names remembers.
    static constexpr nanoseconds quiet = std::chrono::milliseconds{1100};
    static constexpr int least_needed = 2;
    static constexpr int most_needed = 1024;
    /// A retention with fewer local grants is a bad one, one with at least `good` a good one.
    static constexpr std::int64_t bad = 4;
    static constexpr std::int64_t good = 16;
    static constexpr std::int64_t least_block = 16;
    static constexpr std::int64_t most_block = std::int64_t{1} << 20;

private:
    std::int64_t last_ = -1;  ///< the token of the previous release
    int in_a_row_ = 0;
    nanoseconds quiet_until_{0};
    int needed_ = least_needed;
    std::int64_t block_ = least_block;
};

/// The leases that this client retains after their release, and grants to its own threads: of each
/// name one, with a block of tokens that its row reserves (docs/adr/0055). No round trips: the
/// caller sends the statements. Thread-safe.
///
///     state      event                                              next
///     absent     begin(): a release that the policy wants to keep   reserving
///     reserving  kept(): the tokens are reserved, no recall         idle
///                abandoned(), or a recall came meanwhile            absent
///     idle       take(): an acquire, no recall, in time             in_use
///                overdue(): a recall, or the time is up             returning
///     returning  returned(): its release was answered, or failed    absent
///     in_use     overdue(): the time is up                          in_use, as if recalled
///                keep(): a release, no recall, in time, a token     idle
///                begin(): the time or the tokens are nearly over    reserving
///                another release, or a recall before it             absent
///
/// What rests on one mutex a name: a recall either finds the lease idle, and it is given back, or
/// comes after a local grant, and that grant's release frees the lease. From the moment that it is
/// returning or absent no local grant has this grant id.
class retained_leases {
public:
    retained_leases(const std::optional<retain_options>& options, const base::clock& clock);
    retained_leases(const retained_leases&) = delete;
    retained_leases& operator=(const retained_leases&) = delete;
    ~retained_leases() = default;

    /// @param on_work called when a recall leaves something to do. Before any other thread.
    void when_recalled(std::function<void()> on_work) { on_work_ = std::move(on_work); }
    [[nodiscard]] bool enabled() const noexcept { return enabled_; }
    /// Keeps nothing any more, and forgets what was kept: its session is about to end.
    void close() noexcept;

    // --- an acquire
    struct taken {
        std::shared_ptr<grant> granted{};  ///< null if the lease is not retained idle
        /// Another thread of this client holds it, or its release is under way, and no other client
        /// is known to want it.
        bool in_use = false;
        /// The caller's time passed while the lease was given back.
        bool timed_out = false;
    };
    /// The lease of that name, held by the calling thread. Waits for a lease that is just given
    /// back, until then: the database could not grant it yet.
    taken take(const std::string& name, std::string_view thread, std::string_view note,
               std::chrono::steady_clock::time_point until, const std::stop_token& stop);

    // --- a release; `held` is `releasing`
    /// Makes the next grant of a lease: see grant_lifecycle::succeed.
    using successor = std::function<std::shared_ptr<grant>(
        const grant& before, std::int64_t token, std::int64_t row_token,
        std::shared_ptr<retained_lease> kept_as)>;
    /// Keeps the lease without a round trip. Returns false if that is not possible.
    bool keep(const grant& held, const successor& succeed) noexcept;
    /// Returns the last token of a block to be reserved for it, for a lease that is worth keeping.
    /// Then kept() or abandoned() follows. Nullopt: it is to be released.
    /// @param contended another client waits, or is expected to
    std::optional<std::int64_t> begin(grant& held, bool contended);
    /// The tokens are reserved by a statement that was sent then, and found no other client
    /// waiting. Returns false if the lease is to be released all the same.
    bool kept(const grant& held, std::int64_t last, nanoseconds sent, const successor& succeed);
    /// They are not, or that is unknown.
    void abandoned(const grant& held) noexcept;

    // --- other clients
    /// Whether this grant is retained, and was not recalled.
    [[nodiscard]] bool keeps(grant_id grant_id) const noexcept;
    /// Another client wants the lease. Returns false if that is known already, or it is not kept.
    bool recall(grant_id grant_id) noexcept;
    /// The same by its name.
    void recall_name(const std::string& name) noexcept;
    /// For a call of this client that takes these leases together: recalls idle ones, and waits
    /// until they are given back, for 50 ms at least.
    void fetch_back(const std::vector<std::string>& names,
                    std::chrono::steady_clock::time_point until, const std::stop_token& stop);

    // --- the thread that gives back
    struct work {
        std::vector<std::shared_ptr<grant>> recalled{};  ///< `held`; others wait for them
        std::vector<std::shared_ptr<grant>> over{};      ///< `held`; their time is up
        /// In use, and recalled or kept for their time: their rows are to name their holders.
        std::vector<std::shared_ptr<grant>> in_use{};
        nanoseconds next{base::alarm::never};  ///< when to ask again
    };
    [[nodiscard]] work overdue();
    /// A grant that overdue() returned was released, or is in the care of the heartbeat.
    void returned(const grant& given_back) noexcept;
    /// The row of a recalled grant names the thread that holds it. Until then overdue() returns it.
    void answered(const grant& holder) noexcept;

private:
    static constexpr std::size_t shards = 16;
    static constexpr std::size_t most_names = 4096;  ///< of a shard, kept or not

    struct shard {
        std::mutex mutex;
        std::unordered_map<std::string, std::shared_ptr<retained_lease>> names;
    };

    [[nodiscard]] shard& shard_of(const std::string& name) noexcept;
    [[nodiscard]] std::shared_ptr<retained_lease> find(const std::string& name);
    [[nodiscard]] std::shared_ptr<retained_lease> find_or_make(const std::string& name);
    [[nodiscard]] std::shared_ptr<retained_lease> find(grant_id grant_id) const noexcept;
    void end(retained_lease& which) noexcept;
    [[nodiscard]] bool is_in_use(const retained_lease& which) const noexcept;
    template <typename Test>
    bool wait(retained_lease& which, std::unique_lock<std::mutex>& lock,
              std::chrono::steady_clock::time_point until, const std::stop_token& stop, Test test);

    const retain_options options_;
    const base::clock clock_;
    std::atomic<bool> enabled_;
    std::function<void()> on_work_{};
    std::array<shard, shards> shards_;
    mutable std::mutex stays_mutex_;
    std::unordered_map<grant_id, std::shared_ptr<retained_lease>> stays_;  ///< all but `absent`
};

}  // namespace rowlock::detail
