// EvenTime: what it draws cannot be told from what it was given.
#include "examples/server/even_time.hpp"

#include <algorithm>
#include <cmath>

#include "catch.hpp"

using namespace kaiju::server;

namespace {

// The largest distance between the distribution functions of two samples (Kolmogorov and Smirnov).
double distance(std::vector<double> a, std::vector<double> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  double most = 0;
  for (const std::vector<double>* each : {&a, &b})
    for (const double x : *each) {
      const auto below = [x](const std::vector<double>& of) {
        return static_cast<double>(std::upper_bound(of.begin(), of.end(), x) - of.begin()) /
               static_cast<double>(of.size());
      };
      most = std::max(most, std::abs(below(a) - below(b)));
    }
  return most;
}

// What the distance of two samples of one distribution exceeds once in a million pairs.
double bound(size_t a, size_t b) {
  return std::sqrt(-0.5 * std::log(1e-6 / 2) * static_cast<double>(a + b) / static_cast<double>(a * b));
}

}  // namespace

TEST_CASE("times that are drawn have the distribution of the newest replies of their form") {
  const uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  EvenTime times(seed + 1);
  std::lognormal_distribution<double> streams(-3, 0.5), whole(0, 1);
  std::vector<double> newest[2], drawn[2];
  for (int i = 0; i < 2000; ++i) {
    const double now[2] = {i < 1000 ? 5.0 : streams(random), i < 1000 ? 9.0 : whole(random)};  // old ones are forgotten
    times.add(AnswerForm::kStream, now[0]);
    times.add(AnswerForm::kWhole, now[1]);
    if (i >= 2000 - static_cast<int>(EvenTime::kMost))
      for (int form = 0; form < 2; ++form) newest[form].push_back(now[form]);
  }
  for (int i = 0; i < 5000; ++i) {
    drawn[0].push_back(times.draw(AnswerForm::kStream));
    drawn[1].push_back(times.draw(AnswerForm::kWhole));
  }
  for (int form = 0; form < 2; ++form) {
    for (const double each : drawn[form])
      if (std::find(newest[form].begin(), newest[form].end(), each) == newest[form].end()) FAIL("an old time " << each);
    CHECK(distance(newest[form], drawn[form]) < bound(newest[form].size(), drawn[form].size()));
  }
  CHECK(distance(newest[0], drawn[1]) > bound(newest[0].size(), drawn[1].size()));
}

TEST_CASE("without any reply a time is drawn too") {
  EvenTime times(1);
  CHECK(times.draw(AnswerForm::kStream) == EvenTime::kUnknown);
  times.add(AnswerForm::kWhole, 3);
  CHECK(times.draw(AnswerForm::kStream) == EvenTime::kUnknown);
  CHECK(times.draw(AnswerForm::kWhole) == 3);
}
