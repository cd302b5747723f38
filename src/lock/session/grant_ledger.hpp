#pragma once

#include "lock/session/grant.hpp"
#include <rowlock/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace rowlock::detail {

/// A grant in an unknown state: the reply to its acquire, enqueue or release was lost. Each
/// heartbeat cancels its queue entry and releases the grant, until no statement that could still
/// create it should be running.
struct unresolved_grant {
    std::string name{};
    rowlock::grant_id grant_id{};
    bool part = false;          ///< as protocol::hold_key has it
    nanoseconds not_after{0};   ///< on our clock
    bool surely_ended = false;  ///< known to have ended: its row is cleared, nothing is reported
    bool queued = false;        ///< it may have a ticket
    /// An upgrade in which its caller has believed: a transaction of his may still be fenced with
    /// it.
    bool believed_upgrade = false;
    /// For a lost grant: its holder may work until then (the margin), on our clock.
    nanoseconds not_before{0};
    std::shared_ptr<const grant> holder{};  ///< set by remember()

    [[nodiscard]] protocol::hold_key key(session_id session) const noexcept {
        return {name, session, grant_id, part, holder ? &holder->perhaps_lowered : nullptr};
    }
    [[nodiscard]] bool is_due(nanoseconds now) const noexcept {
        return now >= not_before || !holder || holder->stopped;
    }
};

/// Every grant id of one session, from before its statement is sent until its end is confirmed.
/// A row of the session whose id is absent here is given back. Thread-safe.
///
///     state        reached from                  by         meaning
///     pending      absent                        expect     its statement may create a row
///     held         pending, unresolved, absent   hold       a lease object stands for it
///     unresolved   pending, held, absent         remember   the heartbeat is to give it up
///     absent       pending, held                 forget     not sent, not granted, or over
///     absent       unresolved                    resolved   given up, or never granted
///
/// An attempt whose reply was lost stays pending while its caller searches for the grant.
/// reclaim() holds an absent id; a release that the database denied leaves an absent id unresolved.
/// From any other state a function changes nothing, except that remember() amends the record of an
/// unresolved id.
class grant_ledger {
public:
    void expect(grant_id grant_id);           ///< a statement with this new id is about to be sent
    void forget(grant_id grant_id) noexcept;  ///< neither pending nor held any more
    /// Allocates only if the id is absent; if that throws, nothing has changed.
    void hold(const std::shared_ptr<grant>& granted);
    /// The lease object that stands for a held id; or null.
    [[nodiscard]] std::shared_ptr<grant> find(grant_id grant_id) const;
    /// Whether it is pending or held.
    [[nodiscard]] bool knows(grant_id grant_id) const;
    [[nodiscard]] std::vector<std::shared_ptr<grant>> held() const;
    /// Allocates nothing. `use` must not call the ledger: its mutex is held.
    template <typename Use>
    void for_each_held(Use use) const {
        const std::lock_guard lock{mutex_};
        for (const auto& [id, known] : entries_) {
            if (known.now == state::held) use(*known.granted);
        }
    }
    /// Includes lost grants while their rows may still be ours.
    [[nodiscard]] std::size_t held_count() const;
    /// Excludes lost grants, and those that no caller has.
    [[nodiscard]] std::size_t leases() const;
    /// Whether the holder of any grant, lost or not, may still work under it: it has not reported
    /// that it stopped.
    [[nodiscard]] bool has_holder(nanoseconds now) const;
    /// Whether the thread with this label was given a lease that is held.
    [[nodiscard]] bool holds_for(const std::string& thread) const;

    /// Allocates only if the id is absent; if that throws, nothing has changed. The grant of a held
    /// id becomes the record's holder. An unresolved id keeps its record and its place, and takes
    /// over an earlier `not_after` and the ticket.
    void remember(unresolved_grant what);
    /// In the order of remember() and postpone().
    [[nodiscard]] std::vector<unresolved_grant> unresolved() const;
    void resolved(grant_id grant_id);
    /// Moves it to the end of unresolved().
    void postpone(grant_id grant_id);
    [[nodiscard]] bool is_unresolved(grant_id grant_id) const;
    [[nodiscard]] std::size_t unresolved_count() const;
    /// Excludes those whose holders have a margin left.
    [[nodiscard]] std::size_t unresolved_due(nanoseconds now) const;

    /// Whether an outcome was ever unknown.
    [[nodiscard]] bool ever_unknown() const;
    /// Notes an unknown outcome that has no single grant id.
    void doubt() noexcept;

private:
    enum class state : unsigned char { pending, held, unresolved };

    struct entry {
        state now = state::pending;
        std::shared_ptr<grant> granted{};  ///< held
        unresolved_grant record{};         ///< unresolved
        std::uint64_t place = 0;           ///< unresolved: orders unresolved()
    };

    [[nodiscard]] std::optional<state> state_of(grant_id grant_id) const;
    template <typename Test>
    [[nodiscard]] std::size_t count(Test test) const;
    template <typename Test>
    [[nodiscard]] bool any(Test test) const;

    mutable std::mutex mutex_;
    std::unordered_map<grant_id, entry> entries_;
    std::size_t unresolved_ = 0;  ///< hardly ever any: each heartbeat asks, and need not search
    std::uint64_t last_place_ = 0;
    bool ever_unknown_ = false;
};

}  // namespace rowlock::detail
