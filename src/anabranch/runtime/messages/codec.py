"""Stimuli that travel through the store's mailbox, and the answers they get."""

from __future__ import annotations

import msgspec

from anabranch.errors import AnabranchError, InputError
from anabranch.kernel import stimuli as s
from anabranch.store.ports import Message

#: Only what people may say; jobs report to the engine that gave them out.
Sayable = s.Decide | s.PatchContext | s.Pause | s.Resume | s.Cancel | s.Wake | s.TuneLoop

_decoder = msgspec.json.Decoder(Sayable)
_encoder = msgspec.json.Encoder()


class MailAnswer(msgspec.Struct, frozen=True):
    ok: bool
    code: str = ""
    message: str = ""


_answers = msgspec.json.Decoder(MailAnswer)


def write_message(stimulus: Sayable) -> bytes:
    return _encoder.encode(stimulus)


def read_message(message: Message) -> Sayable:
    try:
        stimulus: Sayable = _decoder.decode(message.body)
        return stimulus
    except msgspec.MsgspecError as error:
        raise InputError(f"message {message.id} cannot be read: {error}") from None


def answer_bytes(error: AnabranchError | None) -> bytes:
    if error is None:
        return _encoder.encode(MailAnswer(True))
    return _encoder.encode(MailAnswer(False, error.code, error.message))


def read_answer(answer: bytes) -> MailAnswer:
    return _answers.decode(answer)
