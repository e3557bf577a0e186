"""A tokenizer with one token for each character, in the normal Hugging Face form."""

import string

from transformers import PreTrainedTokenizerFast

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
DEFAULT_ALPHABET = string.digits + string.ascii_lowercase + " +-*/=().,:?!'"
"""Characters of small arithmetic and word problems."""


def character_tokenizer(alphabet: str = DEFAULT_ALPHABET) -> PreTrainedTokenizerFast:
    """Returns a tokenizer with one id for each character of an alphabet, after padding, end and unknown.

    It adds no token of its own around a text. An alphabet without capital letters reads them as small ones.

    Args:
        alphabet: the characters; one that stands twice counts once.

    Raises:
        ValueError: the alphabet is empty.

    Example:
        >>> tokenizer = character_tokenizer("ab")
        >>> tokenizer("Ba").input_ids, tokenizer.decode([4, 3])
        ([4, 3], 'ba')
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    characters = list(dict.fromkeys(alphabet))
    if not characters:
        raise ValueError("a character tokenizer needs an alphabet of at least one character, got none")
    vocabulary = {token: index for index, token in enumerate([PAD, EOS, UNKNOWN, *characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    if alphabet == alphabet.lower():
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
