#include "crew.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <stdexcept>

namespace {

volatile std::sig_atomic_t interruption = 0;

void count(tally& told, char what) {
    told.sales += what == tally::sold;
    told.conflicts += what == tally::conflict;
    told.retries += what == tally::again;
}

[[noreturn]] void become_worker(const std::vector<std::string>& arguments) {
    std::vector<char*> argv{const_cast<char*>("inventory")};
    for (const auto& each : arguments) argv.push_back(const_cast<char*>(each.c_str()));
    argv.push_back(nullptr);
    execv("/proc/self/exe", argv.data());
    _exit(127);
}

}  // namespace

crew::crew(int workers, const std::function<std::vector<std::string>(int)>& arguments) {
    int gate[2], news[2];
    if (pipe(gate) != 0 || pipe(news) != 0) throw std::runtime_error{"no pipe"};
    for (int i = 0; i < workers; ++i) {
        const auto told = arguments(i);
        const pid_t child = fork();
        if (child == 0) {
            dup2(gate[0], STDIN_FILENO);
            dup2(news[1], STDOUT_FILENO);
            for (const int end : {gate[0], gate[1], news[0], news[1]}) ::close(end);
            become_worker(told);
        }
        if (child > 0) workers_.push_back(child);
    }
    ::close(gate[0]);
    ::close(news[1]);
    gate_ = gate[1];
    news_ = news[0];
    if (workers_.size() != static_cast<std::size_t>(workers)) {
        ::close(gate_);
        for (const pid_t each : workers_) kill(each, SIGTERM);
        for (const pid_t each : workers_) waitpid(each, nullptr, 0);
        ::close(news_);
        throw std::runtime_error{"so many processes cannot be started: give fewer --workers"};
    }
}

crew::~crew() {
    for (const pid_t each : workers_) kill(each, SIGTERM);
    for (const pid_t each : workers_) waitpid(each, nullptr, 0);
    ::close(news_);
}

double crew::run(tally& told, const std::function<void(const tally&)>& progress) {
    char news[256];
    for (std::size_t ready = 0; ready < workers_.size(); ++ready) {
        if (read(news_, news, 1) != 1) throw std::runtime_error{"a worker did not start"};
    }
    const auto start = std::chrono::steady_clock::now();
    ::close(gate_);
    for (ssize_t got = 0; (got = read(news_, news, sizeof news)) > 0;) {
        for (ssize_t i = 0; i < got; ++i) count(told, news[i]);
        progress(told);
    }
    if (interrupted()) throw std::runtime_error{"interrupted"};
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    bool failed = false;
    for (const pid_t each : workers_) {
        int status = 0;
        waitpid(each, &status, 0);
        failed = failed || status != 0;
    }
    workers_.clear();
    if (failed) throw std::runtime_error{"a worker failed"};
    return taken.count();
}

bool wait_for_gate() {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    tell(tally::ready);
    char go = 0;
    return read(STDIN_FILENO, &go, 1) == 0;  // all begin when the gate closes
}

void tell(char what) {
    if (write(STDOUT_FILENO, &what, 1) != 1) _exit(1);  // the parent has ended
}

bool interrupted() {
    return interruption != 0;
}

void catch_interrupts() {
    struct sigaction stop {};
    stop.sa_handler = [](int) { interruption = 1; };
    for (const int each : {SIGINT, SIGTERM}) sigaction(each, &stop, nullptr);
}
