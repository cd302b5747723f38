#include "driver/sqlite_turns.hpp"

#include "base/identity.hpp"

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
#include <utility>

namespace rowlock::sqlite {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

/// The contents of the file. All operations are sequentially consistent.
struct write_turns::shared {
    static constexpr std::uint64_t signature = 0x31736e7275742d72;  // "r-turns1"
    /// More waiters than that have no order.
    static constexpr std::uint32_t places = 4096;

    std::uint64_t magic;
    std::atomic<std::uint32_t> next;     ///< the ticket that is drawn next
    std::atomic<std::uint32_t> serving;  ///< whose turn it is; the futex
    /// When that turn began, in ns of CLOCK_MONOTONIC, which all processes share.
    std::atomic<std::int64_t> began;
    /// Turns skipped since one ended by itself.
    std::atomic<std::uint32_t> skipped;
    /// The last ticket of each place whose writer has left the queue.
    std::array<std::atomic<std::uint32_t>, places> gone;

    [[nodiscard]] std::atomic<std::uint32_t>& mark_of(std::uint32_t ticket) noexcept {
        return gone[ticket % places];
    }
};

namespace {

/// Between two turns that are skipped one after the other: they are most likely of one process.
constexpr std::chrono::milliseconds next_patience{1};

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
    static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
                  sizeof of == sizeof(std::uint32_t));
    return reinterpret_cast<std::uint32_t*>(&of);
}

/// Sleeps while the word is `seen`, until the waker's bit or the time. May end early.
void sleep_on(std::atomic<std::uint32_t>& of, std::uint32_t seen, std::uint32_t bit,
              sql::deadline until) noexcept {
    const auto since = std::max<nanoseconds>(until.time_since_epoch(), nanoseconds{0});
    const auto whole = std::chrono::floor<std::chrono::seconds>(since);
    timespec at{};
    at.tv_sec = whole.count();
    at.tv_nsec = (since - whole).count();
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
    const bool made = std::cmp_equal(::write(file, bytes, size), size) && give_away(file, database);
    ::close(file);
    if (!made || ::renameat2(AT_FDCWD, own.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0)
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
    void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    return mapped != MAP_FAILED ? mapped : nullptr;
}

}  // namespace

std::unique_ptr<write_turns> write_turns::open(const std::string& database,
                                               nanoseconds patience) noexcept try {
    struct stat of_database = {};
    if (::stat(database.c_str(), &of_database) != 0) return nullptr;
    const std::string path = database + "-turns";
    std::unique_ptr<write_turns> made{new write_turns{nullptr, patience}};
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
    auto now = steady_clock::now();
    const auto limit = now + (until - now) / 2;
    for (bool waited = false;; waited = true, now = steady_clock::now()) {
        const std::uint32_t seen = shared_->serving.load();
        const std::uint32_t ahead = ticket_ - seen;
        if (ahead > shared::places && ahead <= UINT32_MAX / 2) {
            // Damaged numbers, or far too many waiters.
            std::uint32_t expected = seen;
            shared_->serving.compare_exchange_strong(expected, ticket_);
            continue;
        }
        if (ahead == 0 && !waited) shared_->began = now.time_since_epoch().count();
        if (ahead == 0 || ahead > shared::places) return;  // our turn, or it was skipped
        if (now >= limit) return give_up();
        const auto skip = skip_at(ahead, now);
        if (now >= skip) {
            advance(seen, end::skipped);
        } else {
            sleep_on(shared_->serving, seen, bit_of(ticket_), std::min(skip, limit));
        }
    }
}

/// When a waiter may skip the turn: those behind the next one later, so that they do not all wake.
sql::deadline write_turns::skip_at(std::uint32_t ahead, sql::deadline now) const noexcept {
    const sql::deadline began{nanoseconds{shared_->began.load()}};
    if (began > now) return now;  // of a machine that was started anew since
    const nanoseconds patience = shared_->skipped.load() == 0 ? patience_ : next_patience;
    return began + patience + (ahead - 1) * next_patience;
}

void write_turns::leave() noexcept {
    if (!inside_) return;
    inside_ = false;
    advance(ticket_, end::left);
}

/// Leaves the queue. Either we see that our turn has come, or the one who gives it to us sees the
/// mark: each writes first and then reads.
void write_turns::give_up() noexcept {
    inside_ = false;
    shared_->mark_of(ticket_) = ticket_;
    if (shared_->serving.load() == ticket_) advance(ticket_, end::left);
}

/// Ends the turn `from`, unless that was done, and passes over those who have left the queue.
void write_turns::advance(std::uint32_t from, end how) noexcept {
    for (;;) {
        std::uint32_t expected = from;
        if (!shared_->serving.compare_exchange_strong(expected, from + 1)) return;
        shared_->began = steady_clock::now().time_since_epoch().count();
        if (how == end::left) {
            shared_->skipped = 0;
        } else {
            shared_->skipped.fetch_add(1);
        }
        ++from;
        if (shared_->next.load() == from) return;  // no waiter
        if (shared_->mark_of(from).load() != from) break;
    }
    ::syscall(futex_call, word(shared_->serving), FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr,
              bit_of(from));
}

}  // namespace rowlock::sqlite
