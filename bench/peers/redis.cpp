#include "peers/redis.hpp"

#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <vector>

namespace bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// KEYS: the lock. ARGV: the mark of this grant.
constexpr const char* compare_and_delete =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

class redis_worker final : public worker {
public:
    redis_worker(const std::string& socket, const std::string& name)
        : session_{socket}, release_{session_.load(compare_and_delete)}, name_{name} {}

    void turn() override {
        const std::string mark = fmt::format("{}:{}:{}", ::getpid(), name_, ++turns_);
        const auto taken = session_.run({"SET", name_, mark, "NX", "PX", "30000"});
        if (taken->type != REDIS_REPLY_STATUS) throw std::runtime_error{"Redis: not granted"};
        const auto freed = session_.run({"EVALSHA", release_, "1", name_, mark});
        if (freed->type != REDIS_REPLY_INTEGER || freed->integer != 1) {
            throw std::runtime_error{"Redis: not released"};
        }
    }

private:
    redis_session session_;
    std::string release_;
    std::string name_;
    std::uint64_t turns_ = 0;
};

// KEYS: the lock (a hash of owner and depth). ARGV: owner, lease in ms. Returns 1 if granted.
constexpr const char* hash_acquire = R"(
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return -redis.call('pttl', KEYS[1])
end
redis.call('hincrby', KEYS[1], ARGV[1], 1)
redis.call('pexpire', KEYS[1], ARGV[2])
return 1
)";

// KEYS: as above, and the channel. ARGV: owner, lease in ms. Returns 1 if it is free.
constexpr const char* hash_release = R"(
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return -1 end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], 0)
return 1
)";

// KEYS: the lock (a hash), the hold. ARGV: reader, lease in ms. Returns 1 if granted.
constexpr const char* read_acquire = R"(
local mode = redis.call('hget', KEYS[1], 'mode')
if mode and mode ~= 'read' then return 0 end
redis.call('hset', KEYS[1], 'mode', 'read')
redis.call('hincrby', KEYS[1], ARGV[1], 1)
redis.call('set', KEYS[2], 1, 'PX', ARGV[2])
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then redis.call('pexpire', KEYS[1], ARGV[2]) end
return 1
)";

// KEYS: as above, and the channel. ARGV: reader. The last reader removes the lock and tells.
constexpr const char* read_release = R"(
if redis.call('hincrby', KEYS[1], ARGV[1], -1) <= 0 then redis.call('hdel', KEYS[1], ARGV[1]) end
redis.call('del', KEYS[2])
if redis.call('hlen', KEYS[1]) <= 1 then
    redis.call('del', KEYS[1])
    redis.call('publish', KEYS[3], 0)
end
return 1
)";

// KEYS: the counter of free permits, the holds. ARGV: hold, now in ms, lease in ms, capacity.
constexpr const char* permit_acquire = R"(
local over = redis.call('zrangebyscore', KEYS[2], 0, ARGV[2])
if #over > 0 then
    redis.call('zremrangebyscore', KEYS[2], 0, ARGV[2])
    redis.call('incrby', KEYS[1], #over)
end
if not redis.call('get', KEYS[1]) then redis.call('set', KEYS[1], ARGV[4]) end
if tonumber(redis.call('get', KEYS[1])) < 1 then return 0 end
redis.call('decr', KEYS[1])
redis.call('zadd', KEYS[2], ARGV[2] + ARGV[3], ARGV[1])
return 1
)";

// KEYS: as above, and the channel. ARGV: hold.
constexpr const char* permit_release = R"(
if redis.call('zrem', KEYS[2], ARGV[1]) == 0 then return 0 end
local free = redis.call('incr', KEYS[1])
redis.call('publish', KEYS[3], free)
return 1
)";

// KEYS: lock (a hash of owner and depth), queue (a list), timeouts (a sorted set of the queue's
// members). ARGV: owner, lease in ms, a waiter's timeout in ms, now in ms. Returns nothing if
// granted, otherwise the number of ms after which to ask again without a message.
constexpr const char* fair_acquire = R"(
local now = tonumber(ARGV[4])
while true do
    local first = redis.call('lindex', KEYS[2], 0)
    if not first then break end
    local until_ = redis.call('zscore', KEYS[3], first)
    if until_ and tonumber(until_) > now then break end
    redis.call('zrem', KEYS[3], first)
    redis.call('lpop', KEYS[2])
end
local first = redis.call('lindex', KEYS[2], 0)
if redis.call('exists', KEYS[1]) == 0 and (not first or first == ARGV[1]) then
    if first then
        redis.call('lpop', KEYS[2])
        redis.call('zrem', KEYS[3], ARGV[1])
    end
    redis.call('hset', KEYS[1], ARGV[1], 1)
    redis.call('pexpire', KEYS[1], ARGV[2])
    return nil
end
if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
    redis.call('hincrby', KEYS[1], ARGV[1], 1)
    redis.call('pexpire', KEYS[1], ARGV[2])
    return nil
end
local mine = redis.call('zscore', KEYS[3], ARGV[1])
if mine then return math.max(1, tonumber(mine) - tonumber(ARGV[3]) - now) end
local last = redis.call('lindex', KEYS[2], -1)
local left
if last then
    left = tonumber(redis.call('zscore', KEYS[3], last)) - now
else
    left = redis.call('pttl', KEYS[1])
end
redis.call('zadd', KEYS[3], left + tonumber(ARGV[3]) + now, ARGV[1])
redis.call('rpush', KEYS[2], ARGV[1])
return math.max(1, left)
)";

// KEYS: as above. ARGV: owner, now in ms, the prefix of the channels' names.
constexpr const char* fair_release = R"(
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 1 end
redis.call('del', KEYS[1])
while true do
    local first = redis.call('lindex', KEYS[2], 0)
    if not first then break end
    if tonumber(redis.call('zscore', KEYS[3], first)) > tonumber(ARGV[2]) then
        redis.call('publish', ARGV[3] .. first, '')
        break
    end
    redis.call('zrem', KEYS[3], first)
    redis.call('lpop', KEYS[2])
end
return 1
)";

std::string now_ms() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::to_string(std::chrono::duration_cast<milliseconds>(since).count());
}

void need_one(const redis_session::reply& answer, const char* what) {
    if (answer->type == REDIS_REPLY_INTEGER && answer->integer == 1) return;
    throw std::runtime_error{std::string{"Redis: "} + what};
}

class hash_worker final : public worker {
public:
    hash_worker(const std::string& socket, const std::string& name)
        : session_{socket},
          acquire_{session_.load(hash_acquire)},
          release_{session_.load(hash_release)},
          lock_{"{" + name + "}"},
          channel_{lock_ + ":channel"},
          owner_{fmt::format("{}:{}", ::getpid(), name)} {}

    void turn() override {
        need_one(session_.run({"EVALSHA", acquire_, "1", lock_, owner_, "30000"}), "not granted");
        need_one(session_.run({"EVALSHA", release_, "2", lock_, channel_, owner_, "30000"}),
                 "not released");
    }

private:
    redis_session session_;
    std::string acquire_, release_, lock_, channel_, owner_;
};

class read_worker final : public worker {
public:
    read_worker(const std::string& socket, const std::string& name, int reader)
        : session_{socket},
          acquire_{session_.load(read_acquire)},
          release_{session_.load(read_release)},
          lock_{"{" + name + "}"},
          hold_{lock_ + ":" + std::to_string(reader)},
          channel_{lock_ + ":channel"},
          reader_{fmt::format("{}:{}", ::getpid(), reader)} {}

    void turn() override {
        need_one(session_.run({"EVALSHA", acquire_, "2", lock_, hold_, reader_, "30000"}),
                 "not granted");
        need_one(session_.run({"EVALSHA", release_, "3", lock_, hold_, channel_, reader_}),
                 "not released");
    }

private:
    redis_session session_;
    std::string acquire_, release_, lock_, hold_, channel_, reader_;
};

class permit_worker final : public worker {
public:
    permit_worker(const std::string& socket, const std::string& name, int capacity)
        : session_{socket},
          acquire_{session_.load(permit_acquire)},
          release_{session_.load(permit_release)},
          free_{"{" + name + "}"},
          holds_{free_ + ":holds"},
          channel_{free_ + ":channel"},
          capacity_{std::to_string(capacity)} {}

    void turn() override {
        const auto hold = fmt::format("{}:{}:{}", ::getpid(), fmt::ptr(this), ++turns_);
        need_one(session_.run(
                     {"EVALSHA", acquire_, "2", free_, holds_, hold, now_ms(), "30000", capacity_}),
                 "not granted");
        need_one(session_.run({"EVALSHA", release_, "3", free_, holds_, channel_, hold}),
                 "not released");
    }

private:
    redis_session session_;
    std::string acquire_, release_, free_, holds_, channel_, capacity_;
    std::uint64_t turns_ = 0;
};

class fair_contender final : public handoff::contender {
public:
    fair_contender(const std::string& socket, const std::string& tag, const handoff::entrant& who)
        : session_{socket},
          calls_{socket},
          acquire_{session_.load(fair_acquire)},
          release_{session_.load(fair_release)},
          lock_{"{" + tag + "}:lock"},
          queue_{"{" + tag + "}:queue"},
          timeouts_{"{" + tag + "}:timeouts"},
          channels_{"{" + tag + "}:call:"},
          owner_{fmt::format("{}:{}", ::getpid(), who.index)},
          statements_{who.statements} {
        calls_.run({"SUBSCRIBE", channels_ + owner_});
    }

    void acquire() override {
        const auto last = steady_clock::now() + handoff::patience;
        while (const auto left = try_once()) {
            if (steady_clock::now() > last) throw std::runtime_error{"Redis: waited for a minute"};
            (void)calls_.next_message(std::min<milliseconds>(*left, handoff::patience));
        }
    }

    void release() override {
        ++statements_;
        const auto done = session_.run(
            {"EVALSHA", release_, "3", lock_, queue_, timeouts_, owner_, now_ms(), channels_});
        if (done->integer != 1) throw std::runtime_error{"Redis: it was not ours"};
    }

private:
    std::optional<milliseconds> try_once() {
        ++statements_;
        const auto answer = session_.run({"EVALSHA", acquire_, "3", lock_, queue_, timeouts_,
                                          owner_, "30000", "60000", now_ms()});
        if (answer->type == REDIS_REPLY_NIL) return std::nullopt;
        return milliseconds{answer->integer};
    }

    redis_session session_;
    redis_session calls_;
    std::string acquire_, release_;
    std::string lock_, queue_, timeouts_, channels_, owner_;
    std::atomic<std::uint64_t>& statements_;
};

}  // namespace

void redis_session::close_context::operator()(redisContext* context) const {
    ::redisFree(context);
}

void redis_session::free_reply::operator()(redisReply* reply) const {
    ::freeReplyObject(reply);
}

redis_session::redis_session(const std::string& socket)
    : context_{::redisConnectUnix(socket.c_str())} {
    if (!context_ || context_->err != 0) fail();
}

redis_session::reply redis_session::run(std::initializer_list<std::string_view> words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string_view each : words) {
        texts.push_back(each.data());
        sizes.push_back(each.size());
    }
    reply answer{static_cast<redisReply*>(::redisCommandArgv(
        context_.get(), static_cast<int>(texts.size()), texts.data(), sizes.data()))};
    if (!answer) fail();
    if (answer->type == REDIS_REPLY_ERROR) {
        throw std::runtime_error{std::string{"Redis: "} + answer->str};
    }
    return answer;
}

std::string redis_session::load(std::string_view script) {
    return run({"SCRIPT", "LOAD", script})->str;
}

redis_session::reply redis_session::next_message(milliseconds patience) {
    const auto last = steady_clock::now() + patience;
    for (;;) {
        void* found = nullptr;
        if (::redisGetReplyFromReader(context_.get(), &found) != REDIS_OK) fail();
        if (found != nullptr) return reply{static_cast<redisReply*>(found)};
        const auto left = std::chrono::ceil<milliseconds>(last - steady_clock::now());
        if (left <= milliseconds{0}) return {};
        pollfd watched{context_->fd, POLLIN, 0};
        const int ready = ::poll(&watched, 1, static_cast<int>(left.count()));
        if (ready < 0 && errno != EINTR) throw std::runtime_error{"Redis: cannot wait"};
        if (ready > 0 && ::redisBufferRead(context_.get()) != REDIS_OK) fail();
    }
}

void redis_session::fail() {
    throw std::runtime_error{std::string{"Redis: "} +
                             (context_ ? context_->errstr : "no memory for a connection")};
}

std::unique_ptr<worker> redis_lock(const std::string& socket, const std::string& name) {
    return std::make_unique<redis_worker>(socket, name);
}

handoff::contest redis_fair_queue(const std::string& socket, const std::string& tag) {
    return {"Redis, fair queue", [=](const handoff::entrant& who) {
                return std::make_unique<fair_contender>(socket, tag, who);
            }};
}

std::unique_ptr<worker> redis_hash_lock(const std::string& socket, const std::string& name) {
    return std::make_unique<hash_worker>(socket, name);
}

std::unique_ptr<worker> redis_read_lock(const std::string& socket, const std::string& name,
                                        int reader) {
    return std::make_unique<read_worker>(socket, name, reader);
}

std::unique_ptr<worker> redis_semaphore(const std::string& socket, const std::string& name,
                                        int capacity) {
    return std::make_unique<permit_worker>(socket, name, capacity);
}

}  // namespace bench
