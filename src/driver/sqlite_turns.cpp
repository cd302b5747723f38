#include "driver/sqlite_turns.hpp"

#include "base/identity.hpp"
#include "driver/monotonic_time.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace rowlock::sqlite {

using std::chrono::steady_clock;

/// The contents of the file. All operations are sequentially consistent.
struct write_turns::shared {
    static constexpr std::uint64_t signature = 0x32736e7275742d72;  // "r-turns2"
    /// More waiters than that have no order.
    static constexpr std::uint32_t places = 4096;

    std::uint64_t magic = 0;
    std::atomic<std::uint32_t> next;     ///< the ticket that is drawn next
    std::atomic<std::uint32_t> serving;  ///< whose turn it is; the futex
    /// Of which ticket the turn began, whether its writer has begun it, and when: turn_start.
    std::atomic<std::uint64_t> start;
    /// The last ticket of each place whose writer has left the queue.
    std::array<std::atomic<std::uint32_t>, places> gone;

    static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
                  std::atomic<std::uint64_t>::is_always_lock_free);

    [[nodiscard]] std::atomic<std::uint32_t>& mark_of(std::uint32_t ticket) noexcept {
        return gone[ticket % places];
    }
};

namespace {

/// Between the times at which two waiters behind one another skip a turn.
constexpr std::chrono::milliseconds apart{1};

/// The value of shared::start. The time is in milliseconds of CLOCK_MONOTONIC, which all processes
/// share, without its upper bits.
struct turn_start {
    std::uint32_t ticket = 0;
    bool arrived = false;
    std::uint32_t ms = 0;

    static std::uint32_t ms_of(steady_clock::time_point when) noexcept {
        const auto whole = std::chrono::floor<std::chrono::milliseconds>(when.time_since_epoch());
        return static_cast<std::uint32_t>(whole.count()) & 0x7fff'ffffU;
    }
    static turn_start unpacked(std::uint64_t bits) noexcept {
        return {.ticket = static_cast<std::uint32_t>(bits >> 32U),
                .arrived = (bits & 0x8000'0000U) != 0,
                .ms = static_cast<std::uint32_t>(bits & 0x7fff'ffffU)};
    }
    [[nodiscard]] std::uint64_t packed() const noexcept {
        return std::uint64_t{ticket} << 32U | (arrived ? 0x8000'0000U : 0U) | ms;
    }
    /// Nothing for a time to come: of a machine that was started anew since. A turn may have begun
    /// after the caller read its clock.
    [[nodiscard]] std::optional<std::chrono::milliseconds> age(
        steady_clock::time_point now) const noexcept {
        constexpr std::uint32_t range = 0x8000'0000U;
        constexpr std::uint32_t just_begun = 1000;
        const auto passed = (ms_of(now) - ms) % range;
        if (passed >= range - just_begun) return std::chrono::milliseconds{0};
        if (passed >= range / 2) return std::nullopt;
        return std::chrono::milliseconds{passed};
    }
};

/// A waiter sleeps on the bit of its ticket, so that a turn wakes one of 32 waiters.
std::uint32_t bit_of(std::uint32_t ticket) noexcept {
    return 1U << (ticket % 32);
}

/// The number of the call that takes the C library's timespec.
constexpr long futex_call =
#if defined(SYS_futex_time64) && !defined(__LP64__)
    sizeof(time_t) == 8 ? SYS_futex_time64 :
#endif
                        SYS_futex;

/// The word that the kernel compares.
std::uint32_t* word(std::atomic<std::uint32_t>& of) noexcept {
    static_assert(sizeof of == sizeof(std::uint32_t));
    return reinterpret_cast<std::uint32_t*>(&of);
}

/// Sleeps while the word is `seen`, until the waker's bit or the time. May end early.
void sleep_on(std::atomic<std::uint32_t>& of, std::uint32_t seen, std::uint32_t bit,
              sql::deadline until) noexcept {
    const timespec at = driver::monotonic_time(until);
    // FUTEX_WAIT_BITSET's time is absolute, of CLOCK_MONOTONIC.
    ::syscall(futex_call, word(of), FUTEX_WAIT_BITSET, seen, &at, nullptr, bit);
}

/// Whether the file may be opened: neither a link to another (closing a descriptor of the
/// database's file would drop SQLite's locks on it), nor of a stranger, who could cut it while it
/// is mapped. Who may write the database is no stranger.
bool is_trusted(const struct stat& file, const struct stat& database, std::size_t size) noexcept {
    const bool trusted = file.st_uid == database.st_uid || file.st_uid == ::geteuid() ||
                         file.st_uid == 0 || (database.st_mode & S_IWOTH) != 0 ||
                         ((database.st_mode & S_IWGRP) != 0 && file.st_gid == database.st_gid);
    return S_ISREG(file.st_mode) && file.st_nlink == 1 && trusted &&
           std::cmp_equal(file.st_size, size);
}

/// Gives the new file what SQLite gives its -wal and -shm: the mode and the owner of the database.
bool give_away(int file, const struct stat& database) noexcept {
    if (::geteuid() == 0 && ::fchown(file, database.st_uid, database.st_gid) != 0) return false;
    return ::fchmod(file, database.st_mode & 0666) == 0;
}

/// Makes the file under another name first, so that none sees it half made; of two makers one
/// wins.
/// @param bytes they are written, since a mapped page without a block means SIGBUS on a full disk
void make_file(const std::string& path, const struct stat& database, const void* bytes,
               std::size_t size) {
    const std::string own = path + "-" + std::to_string(base::random_id());
    const int file = ::open(own.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return;
    // Durable before it has its name: an empty file after a power cut would never be opened.
    const bool made = std::cmp_equal(::write(file, bytes, size), size) &&
                      give_away(file, database) && ::fsync(file) == 0;
    ::close(file);
    // Not every file system can rename without replacing.
    if (made && ::renameat2(AT_FDCWD, own.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0 &&
        (errno == EINVAL || errno == ENOSYS)) {
        (void)::link(own.c_str(), path.c_str());
    }
    ::unlink(own.c_str());
}

/// Returns nullptr if the file is not there, or not to be trusted.
void* map_file(const std::string& path, const struct stat& database, std::size_t size) noexcept {
    struct stat found = {};
    if (::lstat(path.c_str(), &found) != 0 || !is_trusted(found, database, size)) return nullptr;
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return nullptr;
    // One that was put in its place meanwhile stays open: see is_trusted().
    if (::fstat(file, &found) != 0 || !is_trusted(found, database, size)) return nullptr;
    // Made when more users could write the database than may now.
    const mode_t excess = found.st_mode & ~database.st_mode & (S_IWGRP | S_IWOTH);
    const bool safe = excess == 0 || ::fchmod(file, database.st_mode & 0666) == 0;
    void* const mapped =
        safe ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    ::close(file);
    return mapped != MAP_FAILED ? mapped : nullptr;
}

}  // namespace

std::unique_ptr<write_turns> write_turns::open(const char* database, patience how) noexcept try {
    struct stat of_database = {};
    if (::stat(database, &of_database) != 0) return nullptr;
    const std::string path = std::string{database} + "-turns";
    std::unique_ptr<write_turns> made{new write_turns{nullptr, how}};
    void* mapped = map_file(path, of_database, sizeof(shared));
    if (mapped == nullptr) {
        const auto first = std::make_unique<shared>();
        first->magic = shared::signature;
        // A mark that no ticket of the place has.
        for (std::uint32_t i = 0; i < shared::places; ++i) first->gone[i] = i + 1;
        make_file(path, of_database, first.get(), sizeof(shared));
        mapped = map_file(path, of_database, sizeof(shared));
    }
    made->shared_ = static_cast<shared*>(mapped);
    if (mapped == nullptr || made->shared_->magic != shared::signature) return nullptr;
    return made;
} catch (const std::exception&) {
    return nullptr;  // no memory, no random numbers
}

write_turns::~write_turns() {
    leave();
    if (shared_ != nullptr) ::munmap(shared_, sizeof(shared));
}

void write_turns::enter(sql::deadline until) noexcept {
    if (inside_) return;
    ticket_ = shared_->next.fetch_add(1);
    inside_ = true;
    const time began = steady_clock::now();
    const time limit = began + (until - began) / 2;
    std::uint32_t seen = shared_->serving.load();
    time seen_since = began;
    for (time now = began;; now = steady_clock::now()) {
        if (const auto serving = shared_->serving.load(); serving != seen) {
            seen = serving;
            seen_since = now;
        }
        const auto ahead = static_cast<std::int32_t>(ticket_ - seen);
        if (ahead == 0) return begin_turn(ticket_, true);
        const bool damaged = static_cast<std::int32_t>(seen - shared_->next.load()) > 0;
        if (ahead < 0 && !damaged) return;  // it was skipped
        if (now >= limit) return give_up();
        const time skip = damaged || std::cmp_greater(ahead, shared::places)
                              ? now
                              : skip_at(seen, seen_since, now) + (ahead - 1) * apart;
        if (now < skip) {
            sleep_on(shared_->serving, seen, bit_of(ticket_), std::min(skip, limit));
        } else if (std::uint32_t expected = seen;
                   shared_->serving.compare_exchange_strong(expected, ticket_)) {
            // Those between have had their time to do so.
            return begin_turn(ticket_, true);
        }
    }
}

/// When the next waiter may skip a turn.
/// @param since when we first saw that it was the turn
write_turns::time write_turns::skip_at(std::uint32_t serving, time since, time now) const noexcept {
    const auto start = turn_start::unpacked(shared_->start.load());
    if (start.ticket != serving) return since + patience_.with_writer;
    const auto age = start.age(now);
    if (!age) return since;
    return now - *age + (start.arrived ? patience_.with_turn : patience_.with_writer);
}

void write_turns::leave() noexcept {
    if (!std::exchange(inside_, false)) return;
    advance();
}

/// Leaves the queue. Either we see that our turn has come, or the one who gives it to us sees the
/// mark: each writes first and then reads.
void write_turns::give_up() noexcept {
    inside_ = false;
    shared_->mark_of(ticket_) = ticket_;
    if (shared_->serving.load() == ticket_) advance();
}

/// Notes the start of a turn. If the note comes late, it is of another turn, or makes one look
/// younger or older by as much.
void write_turns::begin_turn(std::uint32_t whose, bool arrived) noexcept {
    const turn_start start{
        .ticket = whose, .arrived = arrived, .ms = turn_start::ms_of(steady_clock::now())};
    shared_->start = start.packed();
}

/// Ends our turn, unless it was skipped, and passes over those who have left the queue.
void write_turns::advance() noexcept {
    std::uint32_t whose = ticket_;
    do {
        std::uint32_t expected = whose;
        if (!shared_->serving.compare_exchange_strong(expected, whose + 1)) return;
        ++whose;
        if (shared_->next.load() == whose) return;  // no waiter
    } while (shared_->mark_of(whose).load() == whose);
    begin_turn(whose, false);
    ::syscall(futex_call, word(shared_->serving), FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr,
              bit_of(whose));
}

}  // namespace rowlock::sqlite
