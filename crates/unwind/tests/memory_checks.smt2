; The comparisons by which a walk of the own stack decides to load (src/local/sys.rs), for all numbers of 64 bits.
; Each claim is denied: `unsat` says that it has no exception. The first two say that "in the window" and "loaded"
; are the same; the next two use that.
(set-logic QF_BV)
(define-fun saturating_sub ((a (_ BitVec 64)) (b (_ BitVec 64))) (_ BitVec 64)
  (ite (bvult a b) #x0000000000000000 (bvsub a b)))

; `StackWindow::between`: the window from `low` up to `end`.
(declare-const low (_ BitVec 64))
(declare-const end (_ BitVec 64))
(define-fun first () (_ BitVec 64) (bvadd low #x0000000000000008))
(define-fun count () (_ BitVec 64) (saturating_sub (saturating_sub end low) #x0000000000000007))

; `StackWindow::has_word_below`
(define-fun has_word_below ((at (_ BitVec 64))) Bool (bvult (bvsub at first) count))

; All eight bytes below an address are in the window, and none of them is below address 0.
(define-fun is_inside ((at (_ BitVec 64))) Bool
  (and (bvuge at #x0000000000000008) (bvule low (bvsub at #x0000000000000008)) (bvule at end)))

(declare-const at (_ BitVec 64))
(echo "a word that is loaded is in the window")
(push)
(assert (has_word_below at))
(assert (not (is_inside at)))
(check-sat)
(pop)

(echo "a word in the window is loaded")
(push)
(assert (is_inside at))
(assert (not (has_word_below at)))
(check-sat)
(pop)

; `pair_below`: `low` is a stack pointer, so 128 bytes below it exist.
(declare-const below (_ BitVec 64))
(echo "the lower word of a pair is above the red zone's end")
(push)
(assert (bvuge low #x0000000000000080))
(assert (and (bvult below #x0000000000000080) (is_inside at)))
(assert (not (and (bvuge (bvsub at below) #x0000000000000008) (bvule (bvsub at below) end)
  (bvuge (bvsub (bvsub at below) #x0000000000000008) (bvsub low #x0000000000000080)))))
(check-sat)
(pop)

; `all_below_are`: the lowest and the highest end are asked about.
(declare-const lowest (_ BitVec 64))
(declare-const highest (_ BitVec 64))
(echo "words between two in the window are in the window")
(push)
(assert (and (is_inside lowest) (is_inside highest)))
(assert (and (bvule lowest at) (bvule at highest)))
(assert (not (is_inside at)))
(check-sat)
(pop)

; `ReadablePages::read`: from the page of the first byte to that of the last.
(declare-const addr (_ BitVec 64))
(declare-const last (_ BitVec 64))
(declare-const offset (_ BitVec 64))
(define-fun page ((a (_ BitVec 64))) (_ BitVec 52) ((_ extract 63 12) a))
(echo "the page of each byte is asked about")
(push)
(assert (bvuge (bvadd addr last) addr))
(assert (bvule offset last))
(assert (not (and (bvule (page addr) (page (bvadd addr offset))) (bvule (page (bvadd addr offset)) (page (bvadd addr last))))))
(check-sat)
(pop)

(declare-const asked (_ BitVec 52))
(echo "the address that is asked about is in its page")
(push)
(assert (and (bvule (page addr) asked) (bvule asked (page (bvadd addr last))) (bvuge (bvadd addr last) addr)))
(define-fun start () (_ BitVec 64) (concat asked #x000))
(assert (not (= (page (ite (bvugt addr start) addr start)) asked)))
(check-sat)
(pop)

; A step by a row of the usual form: the CFA is `distance` bytes above the stack pointer, the return address below it.
(declare-const sp (_ BitVec 64))
(declare-const distance (_ BitVec 64))
(declare-const next (_ BitVec 64))
(echo "two steps that raise the stack pointer read different words")
(push)
(assert (and (bvugt (bvadd sp distance) sp) (bvugt next (bvadd sp distance))))
(assert (= (bvsub (bvadd sp distance) #x0000000000000008) (bvsub next #x0000000000000008)))
(check-sat)
(pop)
