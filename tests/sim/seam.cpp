// The seam: what the product's object files call of the C and C++ libraries to lock, wait, start
// threads, read clocks and draw random numbers, answered by the scheduler. The linker redirects the
// calls of the objects that it links, the product's archives among them (--wrap, with the names of
// seam_symbols.txt); shared libraries, SQLite and libstdc++ themselves among them, keep their own.
//
// Outside of a simulation, and outside of its threads, nothing waits.

#include "scheduler.hpp"
#include "wall_clock.hpp"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

namespace rowlock::sim {
namespace {

constexpr i64 wall_clock_origin = 1'767'225'600 * second;  // 2026-01-01

/// In the place of a pthread_mutex_t; `kind` is where glibc has it, since PTHREAD_MUTEX_INITIALIZER
/// and its recursive sister write it.
struct mutex {
    u64 owner;  ///< the number of a thread; 0: free
    unsigned depth;
    unsigned waiters;
    int kind;
};
static_assert(sizeof(mutex) <= sizeof(pthread_mutex_t));
static_assert(offsetof(mutex, kind) == offsetof(pthread_mutex_t, __data.__kind));

/// In the place of a pthread_cond_t. libstdc++ destroys it with glibc's function, which looks at
/// other words.
struct condition {
    unsigned waiters;
};

mutex& simulated(pthread_mutex_t* lock) {
    return *reinterpret_cast<mutex*>(lock);
}

/// Code that runs on no simulated thread has a number too.
u64 current_thread() {
    const u64 number = world != nullptr ? world->current() : 0;
    return number != 0 ? number : ~u64{0};
}

void lock(mutex& what) {
    const u64 self = current_thread();
    if (what.owner == self) {
        if (what.kind != PTHREAD_MUTEX_RECURSIVE_NP) {
            std::fprintf(stderr, "sim: a thread locks a mutex that it has locked\n");
            std::abort();
        }
        ++what.depth;
        return;
    }
    while (what.owner != 0) {
        ++what.waiters;
        world->block(&what, forever);
        --what.waiters;
    }
    what.owner = self;
    what.depth = 1;
}

bool try_lock(mutex& what) {
    const bool is_mine = what.owner == current_thread();
    if (what.owner != 0 && !(is_mine && what.kind == PTHREAD_MUTEX_RECURSIVE_NP)) return false;
    lock(what);
    return true;
}

void unlock(mutex& what) {
    if (--what.depth > 0) return;
    what.owner = 0;
    if (what.waiters > 0) world->wake_all(&what);
}

i64 nanoseconds_of(const timespec& time) {
    return time.tv_sec * second + time.tv_nsec;
}

/// Outside of all simulated threads each reading is later than the one before, and a sleep moves
/// it: loops with a deadline end.
i64 outside_ticks = 0;

i64 monotonic_now() {
    if (world == nullptr) return second + ++outside_ticks;
    const bool on_a_node = &world->here() != world->nodes().front().get();
    if (!on_a_node) return world->now() + ++outside_ticks;
    return world->here().local(world->now());
}

/// @return 0, or ETIMEDOUT
int wait(pthread_cond_t* on, pthread_mutex_t* locked, i64 until) {
    auto& waited_for = *reinterpret_cast<condition*>(on);
    unlock(simulated(locked));
    bool woken = true;
    if (world->choices.chance(world->how.spurious_wake_up)) {
        world->give_way();
    } else {
        ++waited_for.waiters;
        woken = world->block(on, until);
        --waited_for.waiters;
    }
    lock(simulated(locked));
    return woken ? 0 : ETIMEDOUT;
}

/// Waits while the word has this value. False: until the time.
bool wait_on_word(const void* word, unsigned value, i64 until) {
    unsigned seen = 0;
    std::memcpy(&seen, word, sizeof seen);
    return seen != value || world->block(word, until);
}

/// std::thread keeps the number of the thread in the place of its handle.
static_assert(sizeof(std::thread) == sizeof(u64));
u64 number_of(const std::thread* handle) {
    u64 number = 0;
    std::memcpy(&number, static_cast<const void*>(handle), sizeof number);
    return number;
}
void set_number(std::thread* handle, u64 number) {
    std::memcpy(static_cast<void*>(handle), &number, sizeof number);
}

/// How many static variables of functions the thread is making. It does not give way meanwhile: a
/// seed does the same whether it is the first to make them or not.
thread_local int statics_being_made = 0;

void give_way_at(double chance) {
    if (world != nullptr && statics_being_made == 0) world->give_way_at(chance);
}

random& draws() {
    static random outside{42};
    return world != nullptr ? world->draws : outside;
}

}  // namespace

i64 wall_clock(i64 true_time) {
    return wall_clock_origin + true_time;
}

}  // namespace rowlock::sim

using namespace rowlock::sim;

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the linker's names
extern "C" {

// --- mutexes and condition variables -------------------------------------------------------------

int __wrap_pthread_mutex_lock(pthread_mutex_t* what) {
    if (world != nullptr) give_way_at(world->how.switch_at_lock);
    lock(simulated(what));
    return 0;
}
int __wrap_pthread_mutex_trylock(pthread_mutex_t* what) {
    if (world != nullptr) give_way_at(world->how.switch_at_lock);
    return try_lock(simulated(what)) ? 0 : EBUSY;
}
int __wrap_pthread_mutex_unlock(pthread_mutex_t* what) {
    unlock(simulated(what));
    if (world != nullptr) give_way_at(world->how.switch_at_unlock);
    return 0;
}

// std::condition_variable::notify_all, notify_one, wait
void __wrap__ZNSt18condition_variable10notify_allEv(std::condition_variable* on) {
    if (reinterpret_cast<condition*>(on)->waiters > 0) world->wake_all(on);
}
void __wrap__ZNSt18condition_variable10notify_oneEv(std::condition_variable* on) {
    if (reinterpret_cast<condition*>(on)->waiters > 0) world->wake_one(on);
}
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(
    std::condition_variable* on, std::unique_lock<std::mutex>* locked) {
    wait(on->native_handle(), locked->mutex()->native_handle(), forever);
}
int __wrap_pthread_cond_clockwait(pthread_cond_t* on, pthread_mutex_t* locked, clockid_t clock,
                                  const timespec* until) {
    const i64 time = nanoseconds_of(*until);
    if (clock == CLOCK_REALTIME) return wait(on, locked, time - wall_clock(0));
    return wait(on, locked, world->here().truth(time));
}
int __wrap_pthread_cond_timedwait(pthread_cond_t* on, pthread_mutex_t* locked,
                                  const timespec* until) {
    return wait(on, locked, nanoseconds_of(*until) - wall_clock(0));
}

// --- threads -------------------------------------------------------------------------------------

// std::thread::_M_start_thread, join, detach
void __wrap__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    std::thread* handle, std::unique_ptr<std::thread::_State>* state, void (*)()) {
    const std::shared_ptr<std::thread::_State> shared{state->release()};
    set_number(handle, world->spawn(world->here(), [shared] { shared->_M_run(); }));
    world->give_way();
}
void __wrap__ZNSt6thread4joinEv(std::thread* handle) {
    world->join(number_of(handle));
    set_number(handle, 0);
}
void __wrap__ZNSt6thread6detachEv(std::thread* handle) {
    set_number(handle, 0);
}
pthread_t __wrap_pthread_self() {
    return current_thread();
}
int __wrap_gettid() {
    return static_cast<int>(current_thread() & 0x7fffffff);
}
int __wrap_sched_yield() {
    if (world != nullptr) world->give_way();
    return 0;
}
int __wrap___cxa_thread_atexit(void (*destroy)(void*), void* object, void*) {
    if (world != nullptr) world->at_exit(destroy, object);
    return 0;
}

// --- once only -----------------------------------------------------------------------------------

int __wrap_pthread_once(pthread_once_t* once, void (*call)()) {
    if (*once == PTHREAD_ONCE_INIT) {
        *once = 2;  // as glibc does when it is done
        call();
    }
    return 0;
}

// The guard of a static variable of a function: its first byte says "made", its second "being made"
// by another thread, for which this one waits.
int __wrap___cxa_guard_acquire(unsigned char* guard) {
    while (guard[0] == 0 && guard[1] != 0) world->block(guard, forever);
    if (guard[0] != 0) return 0;
    guard[1] = 1;
    ++statics_being_made;
    return 1;
}
void __wrap___cxa_guard_release(unsigned char* guard) {
    guard[0] = 1;
    guard[1] = 0;
    --statics_being_made;
    if (world != nullptr) world->wake_all(guard);
}
void __wrap___cxa_guard_abort(unsigned char* guard) {
    guard[1] = 0;
    --statics_being_made;
    if (world != nullptr) world->wake_all(guard);
}

// --- words that are waited for -------------------------------------------------------------------

/// std::atomic::wait and notify: the system call futex.
long __wrap_syscall(long /*number*/, void* word, long operation, long value, const timespec*, void*,
                    long) {
    constexpr long wake = 1;
    constexpr long command = 127;  // without the flags
    if ((operation & command) == wake) {
        world->wake_all(word);
    } else {
        wait_on_word(word, static_cast<unsigned>(value), forever);
    }
    return 0;
}

// std::future: __atomic_futex_unsigned_base::_M_futex_notify_all, _M_futex_wait_until (by the wall
// clock) and _M_futex_wait_until_steady
void __wrap__ZNSt28__atomic_futex_unsigned_base19_M_futex_notify_allEPj(unsigned* word) {
    if (world != nullptr) world->wake_all(word);
}
bool __wrap__ZNSt28__atomic_futex_unsigned_base19_M_futex_wait_untilEPjjbNSt6chrono8durationIlSt5ratioILl1ELl1EEEENS2_IlS3_ILl1ELl1000000000EEEE(
    void*, unsigned* word, unsigned value, bool has_limit, std::chrono::seconds whole,
    std::chrono::nanoseconds rest) {
    const i64 until = std::chrono::nanoseconds{whole + rest}.count() - wall_clock(0);
    return wait_on_word(word, value, has_limit ? until : forever);
}
bool __wrap__ZNSt28__atomic_futex_unsigned_base26_M_futex_wait_until_steadyEPjjbNSt6chrono8durationIlSt5ratioILl1ELl1EEEENS2_IlS3_ILl1ELl1000000000EEEE(
    void*, unsigned* word, unsigned value, bool has_limit, std::chrono::seconds whole,
    std::chrono::nanoseconds rest) {
    const i64 until = world->here().truth(std::chrono::nanoseconds{whole + rest}.count());
    return wait_on_word(word, value, has_limit ? until : forever);
}

// --- time ----------------------------------------------------------------------------------------

int __wrap_nanosleep(const timespec* time, timespec*) {
    if (world == nullptr || world->current() == 0) {
        outside_ticks += nanoseconds_of(*time);
        return 0;
    }
    const i64 until = world->here().local(world->now()) + nanoseconds_of(*time);
    world->sleep_until(world->here().truth(until));
    return 0;
}

// std::chrono::steady_clock::now, system_clock::now
std::chrono::steady_clock::time_point __wrap__ZNSt6chrono3_V212steady_clock3nowEv() {
    return std::chrono::steady_clock::time_point{std::chrono::nanoseconds{monotonic_now()}};
}
std::chrono::system_clock::time_point __wrap__ZNSt6chrono3_V212system_clock3nowEv() {
    const i64 now = wall_clock(world != nullptr ? world->now() : 0);
    return std::chrono::system_clock::time_point{std::chrono::nanoseconds{now}};
}

// --- random numbers ------------------------------------------------------------------------------

ssize_t __wrap_getrandom(void* to, std::size_t size, unsigned) {
    for (std::size_t done = 0; done < size; done += sizeof(u64)) {
        const u64 number = draws().next();
        std::memcpy(static_cast<char*>(to) + done, &number, std::min(sizeof number, size - done));
    }
    return static_cast<ssize_t>(size);
}
unsigned __wrap__ZNSt13random_device9_M_getvalEv(std::random_device*) {
    return static_cast<unsigned>(draws().next());
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
