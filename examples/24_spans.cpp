// Spans for OpenTelemetry, made of a client's events: one for each wait and one for each hold, as
// lines of OTLP/JSON, which a collector takes by HTTP. A span belongs to the trace of the code that
// asks for the lock, which says so before it does.
//
//   24_spans [URL]
//   TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 24_spans

#include "example.hpp"
#include <rowlock/client.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>

using namespace std::chrono_literals;
using std::chrono::system_clock;

namespace {

std::string random_id(std::size_t digits) {
    static std::random_device random;
    std::string id;
    while (id.size() < digits) id += "0123456789abcdef"[random() % 16];
    return id;
}

/// A place in a trace.
struct trace_context {
    std::string trace_id = random_id(32), parent_id{};

    /// As the header `traceparent` of W3C says; without one, the root of a new trace.
    static trace_context of(const char* header) {
        const std::string text = header == nullptr ? "" : header;
        if (text.size() != 55 || text.find_first_not_of("0123456789abcdef-") < 55) return {};
        return {text.substr(3, 32), text.substr(36, 16)};
    }
};

std::string escaped(const std::string& name) {  // of a lock: it has no control characters
    std::string text;
    for (const char c : name) text += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    return text;
}

long long nanoseconds(system_clock::time_point when) {
    return std::chrono::nanoseconds{when.time_since_epoch()}.count();
}

class span_printer {
public:
    /// From now on what happens to this lock belongs to that trace.
    void follow(const std::string& name, trace_context context) {
        const std::lock_guard lock{mutex_};
        contexts_[name] = std::move(context);
    }
    /// Called on a thread of the client.
    void on_event(const rowlock::event& what) {
        using enum rowlock::event_kind;
        const auto now = system_clock::now();
        const std::lock_guard lock{mutex_};
        if (what.kind == lease_acquired) {
            print("acquire", what, now - what.waited, now);
            held_since_[{what.name, what.token.value()}] = now;
        } else if (what.kind == lease_released || what.kind == lease_lost) {
            const auto hold = held_since_.extract({what.name, what.token.value()});
            if (hold) print("hold", what, hold.mapped(), now);
        }
    }

private:
    void print(const char* verb, const rowlock::event& of, system_clock::time_point begin,
               system_clock::time_point end) {
        const auto& [trace_id, parent_id] = contexts_[of.name];
        const bool lost = of.kind == rowlock::event_kind::lease_lost;  // status 2: an error
        std::printf(
            R"({"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":)"
            R"({"stringValue":"spans"}}]},"scopeSpans":[{"scope":{"name":"rowlock"},"spans":[{)"
            R"("traceId":"%s","spanId":"%s","parentSpanId":"%s","name":"%s %s","kind":3,)"
            R"("startTimeUnixNano":"%lld","endTimeUnixNano":"%lld","attributes":[{"key":)"
            R"("rowlock.token","value":{"intValue":"%lld"}}],"status":{"code":%d,"message":"%s"}}]}]}]})"
            "\n",
            trace_id.c_str(), random_id(16).c_str(), parent_id.c_str(), verb,
            escaped(of.name).c_str(), nanoseconds(begin), nanoseconds(end),
            static_cast<long long>(of.token.value()), lost ? 2 : 0,
            lost ? std::string{to_string(of.reason)}.c_str() : "");
    }

    std::mutex mutex_;
    std::map<std::string, trace_context> contexts_;
    std::map<std::pair<std::string, std::int64_t>, system_clock::time_point> held_since_;
};

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        span_printer spans;  // outlives the client
        rowlock::client locks{
            database, {.on_event = [&](const rowlock::event& what) { spans.on_event(what); }}};
        spans.follow("import", trace_context::of(std::getenv("TRACEPARENT")));
        const auto lease = locks.acquire("import");
        std::this_thread::sleep_for(10ms);  // … work
    });
}
