// Functions of one real number, in f64 and in the operations of loops alone: no multiply-add, no library, so the same
// bits on every machine. What they are off by is measured by tests/kernels/generated_test.cc.
//
//   const int y = exponential(w, w.real(x));
#pragma once

#include <span>

#include "kernels/generated/writer.h"

namespace nlsplit::inline kernels {

// Rational approximations as in Moshier's Cephes library ("Methods and Programs for Mathematical Functions", 1989;
// netlib.org/cephes): within 2 units in the last place of f64, so that what is rounded to f32 is the nearest but for
// one in some 10^8.
int exponential(LoopWriter& w, int x);           // e^x
int exponential_less_one(LoopWriter& w, int x);  // e^x - 1, exact near 0
int logarithm(LoopWriter& w, int x);             // -inf of 0, no number below
int hyperbolic_tangent(LoopWriter& w, int x);
int error_function(LoopWriter& w, int x);  // erf
// x^y as e^(y log x) with the sign and the special values of C's pow. Off by |y log x| units of f64: for f32 and
// halves.
int power(LoopWriter& w, int x, int y);

// ---- what they are made of

int polynomial(LoopWriter& w, int x, std::span<const double> coefficients);  // highest power first
int monic(LoopWriter& w, int x, std::span<const double> coefficients);       // the same with 1 for the highest
int with_sign_of(LoopWriter& w, int size, int x);                            // of f64
int within(LoopWriter& w, int x, double low, double high);                   // of f64; what is no number stays so

}  // namespace nlsplit::inline kernels
