// The main() of all targets where the compiler has no libFuzzer: the inputs of the given folders,
// and what a few mutations make of them, always the same. Keeps the input it works on, so that one
// that ends the program can be found: ./crash-<target>.
//
//   fuzz_targets TARGET [-rounds=N] FOLDER…

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// fuzz_targets.inc names all of them.
#define TARGET(name) extern "C" int fuzz_##name(const std::uint8_t* data, std::size_t size);
#include "fuzz_targets.inc"
#undef TARGET

namespace {

struct target {
    std::string_view name;
    int (*try_one)(const std::uint8_t* data, std::size_t size);
};

constexpr target targets[] = {
#define TARGET(name) {#name, fuzz_##name},
#include "fuzz_targets.inc"
#undef TARGET
};

const target* chosen = nullptr;
std::string current;
std::string crash_file;

void keep_input(int signal) {
    const int file = ::open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    const auto written = ::write(file, current.data(), current.size());
    static_cast<void>(written);
    ::close(file);
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

void run(std::string input) {
    current = std::move(input);
    chosen->try_one(reinterpret_cast<const std::uint8_t*>(current.data()), current.size());
}

class dice {
public:
    std::size_t below(std::size_t limit) {
        state_ = state_ * 6364136223846793005U + 1442695040888963407U;
        return static_cast<std::size_t>(state_ >> 33) % limit;
    }

private:
    std::uint64_t state_ = 20261121;
};

// Characters that mean something to one parser or another.
constexpr std::string_view alphabet = "'\"`[]$1209aE\\-/*!#:;?=%@&{},. \n\t\x00\x7f\xc3\xa9\xf4";

std::string mutated(const std::vector<std::string>& seeds, dice& random) {
    std::string text = seeds[random.below(seeds.size())];
    for (std::size_t changes = 1 + random.below(6); changes > 0; --changes) {
        const std::size_t at = random.below(text.size() + 1);
        switch (random.below(5)) {
            case 0:
                text.insert(at, 1, alphabet[random.below(alphabet.size())]);
                break;
            case 1:
                text.erase(at, 1 + random.below(4));
                break;
            case 2:
                if (at < text.size()) text[at] = static_cast<char>(random.below(256));
                break;
            case 3:
                text.insert(at, text.substr(random.below(text.size() + 1), 1 + random.below(12)));
                break;
            default: {
                const std::string& other = seeds[random.below(seeds.size())];
                text.replace(at, std::string::npos, other, random.below(other.size() + 1),
                             std::string::npos);
            }
        }
    }
    return text;
}

std::vector<std::string> files_of(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> paths;
    for (const auto& each : std::filesystem::directory_iterator{folder}) {
        paths.push_back(each.path());
    }
    std::ranges::sort(paths);
    std::vector<std::string> texts;
    for (const auto& each : paths) {
        std::ifstream file{each, std::ios::binary};
        texts.emplace_back(std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{});
    }
    return texts;
}

}  // namespace

int main(int argc, char** argv) {
    unsigned long rounds = 10'000;
    std::vector<std::string> seeds;
    const std::vector<std::string_view> arguments{argv + 1, argv + argc};
    const std::string_view name = arguments.empty() ? "" : arguments.front();
    chosen = std::ranges::find(targets, name, &target::name);
    if (chosen == std::end(targets)) {
        std::cerr << "there is no target \"" << name << "\"; see tests/fuzz/corpus\n";
        return 2;
    }
    crash_file = "crash-fuzz_" + std::string{name};
    for (const std::string_view argument : std::span{arguments}.subspan(1)) {
        constexpr std::string_view option = "-rounds=";
        if (argument.starts_with(option)) {
            rounds = std::stoul(std::string{argument.substr(option.size())});
            continue;
        }
        for (auto& text : files_of(argument)) seeds.push_back(std::move(text));
    }
    if (seeds.empty()) {
        std::cerr << "there are no inputs: name a folder of tests/fuzz/corpus\n";
        return 2;
    }
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, keep_input);
    for (const auto& seed : seeds) run(seed);
    dice random;
    for (unsigned long round = 0; round < rounds; ++round) run(mutated(seeds, random));
    std::cout << seeds.size() << " inputs and " << rounds << " made of them: no rule is broken\n";
}
