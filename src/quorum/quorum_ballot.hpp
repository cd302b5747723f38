#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

/// The decisions of a quorum lock, without a database, a clock or a thread: what each event makes
/// of one client's ballot for one name, and what it has to do next. The tests drive the same code
/// by a simulation (tests/sim/ballot_simulation.hpp).
namespace rowlock::protocol {

using std::chrono::nanoseconds;

/// What can be left out to show that it is needed. Tests only; all true in the product.
struct quorum_safeguards {
    bool writes_back = true;  ///< a token is in a majority of the stores before the client believes
    bool shortest_of_majority = true;  ///< trust is the m-th longest window, not the longest
    bool latches = true;               ///< a majority that was lost stays lost
    bool seals = true;                 ///< the stores that are not counted learn of the token
};

struct quorum_terms {
    int stores = 3;
    /// Of the stores that were configured, not of those that answer: more than half.
    int majority = 2;
    nanoseconds ttl{std::chrono::seconds{30}};
    /// A store that has not answered for this long is asked, and not waited for.
    nanoseconds answers_within{std::chrono::milliseconds{200}};
    /// A minority is given back after this, or four round trips to the slowest store that answers,
    /// and up to as much again at random, unless it includes the first store that answers.
    nanoseconds minority_for{std::chrono::milliseconds{20}};
    nanoseconds longest_rest{std::chrono::milliseconds{64}};
    /// After a loss the leases are kept for so long: the holder may need that time to stop.
    nanoseconds margin{std::chrono::seconds{5}};
    quorum_safeguards with{};
};

/// What this client knows of its stores, beyond one ballot. Thread-safe in the product.
class quorum_view {
public:
    virtual ~quorum_view() = default;
    /// Until when the client may trust the lease that it was granted there, as that ask; at or
    /// before now if it is lost.
    [[nodiscard]] virtual nanoseconds trusted_until(int store, std::int64_t ask) const = 0;
    /// Whether the store answers: the first that does decides between minorities.
    [[nodiscard]] virtual bool answers(int store, nanoseconds now) const = 0;
    /// To the slowest store that answers.
    [[nodiscard]] virtual nanoseconds round_trip() const = 0;
    /// From 0 to 1.
    [[nodiscard]] virtual double random() = 0;
};

enum class quorum_step : unsigned char {
    wait_in_line,  ///< acquires the lease of that store as `ask`
    claim,         ///< raises the store's quorum token by one, if the lease is still that grant
    write,         ///< raises the store's quorum token to `token`, likewise
    seal,          ///< raises it to `token`, without a grant
    /// Ends `ask`: stops waiting, and releases the lease; first writes `token`, unless it is 0.
    release,
};

struct quorum_action {
    quorum_step what{};
    int store = 0;
    std::int64_t ask = 0;
    std::int64_t token = 0;
};

/// One client's attempt to hold one name by a majority of the stores, from its first question to
/// its last release. Each event belongs to an ask; one of an ask that was ended changes nothing.
/// Not thread-safe. Times are the client's own.
///
/// Exclusion: two believers would share a store that both count. Each trusts it only while the
/// store's lease is its own, and a lease has one holder. What a later grant adds only exchanges one
/// majority for another, since the belief is looked at first (`check`).
///
/// Tokens: let A believe, later B, and both count store s. B's claim at s follows B's grant there,
/// A's write at s was made under A's grant, which ended before B's began. So B's claim at s found
/// A's token, and is greater; B's token is the greatest of its claims in the stores that it counts,
/// and is in a majority before B believes. It is the ballot of Lamport, "Paxos Made Simple": read a
/// majority, write a majority.
class quorum_ballot {
public:
    enum class state : unsigned char {
        idle,     ///< not begun, or given up by its caller
        waiting,  ///< in the lines of the stores, or writing the token
        resting,  ///< has given a minority back, and begins again at alarm()
        held,
        lost,  ///< was held; stays so. Its leases are released when alarm() is due, or by give_up()
    };

    static constexpr std::size_t most_stores = 9;

    quorum_ballot(const quorum_terms& terms, quorum_view& view);

    /// Asks all stores at once.
    void begin();
    /// The lease of that store is ours.
    void granted(int store, std::int64_t ask, nanoseconds now);
    /// The store ended the ask without a grant, or could not be asked.
    void refused(int store, std::int64_t ask, nanoseconds now);
    /// The store's quorum token is at least `token`, written under our grant: an answer to claim or
    /// write.
    void written(int store, std::int64_t ask, std::int64_t token, nanoseconds now);
    /// The lease of that store is not ours any more, or a claim or write found so or got no answer.
    void ended(int store, std::int64_t ask, nanoseconds now);
    /// Time has passed: call at alarm().
    void tick(nanoseconds now);
    /// The caller gives up, or releases what it holds.
    void give_up();

    [[nodiscard]] state now() const noexcept { return state_; }
    /// Whether a majority is trusted now. Latched by the next event, not by this.
    [[nodiscard]] bool held(nanoseconds now) const;
    /// Until when held() stays true without another event, if no window is extended.
    [[nodiscard]] nanoseconds trusted_until() const;
    /// Of the hold; 0 before it is known.
    [[nodiscard]] std::int64_t token() const noexcept { return token_; }
    /// How many stores are counted: their lease is ours, and the token is there.
    [[nodiscard]] int counted() const noexcept;
    [[nodiscard]] bool counts(int store) const { return links_[index(store)].at == stage::counted; }
    /// When tick() is due; never if that is the greatest time.
    [[nodiscard]] nanoseconds alarm() const noexcept { return alarm_; }
    /// How often a minority was given back.
    [[nodiscard]] int rests() const noexcept { return rests_; }

    /// What is to be done, in this order; each once.
    [[nodiscard]] std::vector<quorum_action> take_actions();

private:
    enum class stage : unsigned char {
        none,
        asked,
        granted,  ///< a claim is under way
        claimed,
        writing,
        counted,
    };
    struct link {
        stage at = stage::none;
        std::int64_t ask = 0;
        std::int64_t token = 0;  ///< known to be in the store, under this grant
        nanoseconds again{0};    ///< not asked before
    };

    static std::size_t index(int store) { return static_cast<std::size_t>(store); }
    [[nodiscard]] bool is_of(int store, std::int64_t ask, stage from) const;
    [[nodiscard]] int granted_stores() const;
    [[nodiscard]] nanoseconds patience() const;
    [[nodiscard]] bool is_minority() const;
    [[nodiscard]] bool check(nanoseconds now);
    void ask(int store);
    [[nodiscard]] static bool is_unanswered(const link& one) {
        return one.at == stage::granted || one.at == stage::writing;
    }
    void release(int store, std::int64_t token = 0);
    void release_those_behind();
    void seal(int store);
    void seal_unanswered();
    void release_left();
    void release_all();
    void decide(nanoseconds now);
    bool fix_token();
    void count_or_write(int store);
    void believe(nanoseconds now);
    void lose(nanoseconds now);
    void rest(nanoseconds now);
    void note_minority(nanoseconds now);
    void set_alarm();

    const quorum_terms terms_;
    quorum_view& view_;
    std::vector<link> links_;
    std::vector<quorum_action> actions_;
    state state_ = state::idle;
    std::int64_t token_ = 0, asks_ = 0;
    int rests_ = 0;
    nanoseconds look_at_minority_, end_of_minority_, rest_until_, keep_until_, alarm_;
    std::vector<quorum_action> left_;  ///< releases that wait until it is known whether it is lost
};

}  // namespace rowlock::protocol
